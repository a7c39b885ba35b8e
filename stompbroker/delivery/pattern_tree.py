"""Wildcard subscriptions, by the topics they match.

Law: a tree of segments for each kind of destination. Matching carries a set of nodes along the name, so its cost grows
with the name's length and the branches that match, not with the number of patterns: none can make it explode.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final

from stompbroker.delivery.destination import ANY_NUMBER, ANY_ONE, DEAD_LETTERS, DestinationKind, Pattern

Value = TypeVar("Value")


@final
class _Node(Generic[Value]):
    __slots__ = ("children", "repeats", "values")

    def __init__(self, *, repeats: bool = False) -> None:
        #: By segment; wildcards stand for themselves, since no name contains them as a segment.
        self.children: dict[str, _Node[Value]] = {}
        #: Whether this node stands behind a `>` and may swallow further segments.
        self.repeats = repeats
        #: In the order they were added.
        self.values: dict[Value, None] = {}


@final
class PatternTree(Generic[Value]):
    """
    Invariants:
        every node but the roots lies on the path of some pattern: removing the last value of a pattern prunes its path
        version grows with every change, so that a remembered match is known to be outdated
    """

    __slots__ = ("_roots", "count", "version")

    def __init__(self) -> None:
        self._roots: dict[DestinationKind, _Node[Value]] = {kind: _Node() for kind in DestinationKind}
        self.count = 0
        self.version = 0

    def add(self, pattern: Pattern, value: Value) -> None:
        node = self._roots[pattern.kind]
        for segment in pattern.segments:
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node(repeats=segment == ANY_NUMBER)
            node = child
        assert value not in node.values
        node.values[value] = None
        self.count += 1
        self.version += 1

    def remove(self, pattern: Pattern, value: Value) -> None:
        path = [self._roots[pattern.kind]]
        for segment in pattern.segments:
            path.append(path[-1].children[segment])
        del path[-1].values[value]
        for parent, segment, child in reversed(list(zip(path, pattern.segments, path[1:], strict=False))):
            if child.children or child.values:
                break
            del parent.children[segment]
        self.count -= 1
        self.version += 1

    def match(self, topic: Pattern) -> list[Value]:
        """The values of all patterns that mean this topic, each once."""
        if not self.count:
            return []
        root, name = self._roots[topic.kind], topic.segments
        if name[0] == DEAD_LETTERS:
            # Wildcards do not stand for that segment, as in `Pattern.matches`.
            beginning = root.children.get(DEAD_LETTERS)
            nodes, name = _with_empty_matches({beginning} if beginning is not None else set()), name[1:]
        else:
            nodes = _with_empty_matches({root})
        for segment in name:
            following: set[_Node[Value]] = set()
            for node in nodes:
                if node.repeats:
                    following.add(node)
                for wanted in (segment, ANY_ONE):
                    if (child := node.children.get(wanted)) is not None:
                        following.add(child)
            nodes = _with_empty_matches(following)
            if not nodes:
                return []
        return [value for node in nodes for value in node.values]


def _with_empty_matches(nodes: set[_Node[Value]]) -> set[_Node[Value]]:
    """Add the nodes reached by letting `>` stand for nothing."""
    reached = set(nodes)
    for node in nodes:
        while (child := node.children.get(ANY_NUMBER)) is not None:
            node = child
            reached.add(node)
    return reached
