"""All wildcard subscriptions, arranged so that a topic finds the ones that mean it.

Law: a tree of segments for each kind of destination; matching carries a set of nodes along the name, so its cost grows
with the name's length and the branches that really match, not with the number of patterns, and no pattern can make it
explode.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final

from stompbroker.delivery.destination import ANY_NUMBER, ANY_ONE, DEAD_LETTERS, DestinationKind, Pattern

__all__ = ["PatternTree"]

Value = TypeVar("Value")


@final
class _Node(Generic[Value]):
    __slots__ = ("any_number", "any_one", "children", "repeats", "values")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _Node[Value]] = {}
        self.any_one: _Node[Value] | None = None
        self.any_number: _Node[Value] | None = None
        #: Whether this node stands behind a `>` and may swallow further segments.
        self.repeats = repeats
        #: Insertion-ordered.
        self.values: dict[Value, None] = {}

    @property
    def is_unused(self) -> bool:
        return not (self.children or self.any_one or self.any_number or self.values)

    def child(self, segment: str) -> _Node[Value] | None:
        if segment == ANY_ONE:
            return self.any_one
        if segment == ANY_NUMBER:
            return self.any_number
        return self.children.get(segment)

    def make_child(self, segment: str) -> _Node[Value]:
        if segment == ANY_ONE:
            self.any_one = self.any_one or _Node()
            return self.any_one
        if segment == ANY_NUMBER:
            self.any_number = self.any_number or _Node(repeats=True)
            return self.any_number
        return self.children.setdefault(segment, _Node())

    def remove_child(self, segment: str) -> None:
        if segment == ANY_ONE:
            self.any_one = None
        elif segment == ANY_NUMBER:
            self.any_number = None
        else:
            del self.children[segment]


@final
class PatternTree(Generic[Value]):
    """
    Invariants:
        every node but the roots lies on the path of some pattern: removing the last value of a pattern prunes its path
        version grows with every change, so that whoever remembers a match knows when to ask again
    """

    __slots__ = ("_roots", "count", "version")

    def __init__(self) -> None:
        self._roots: dict[DestinationKind, _Node[Value]] = {kind: _Node() for kind in DestinationKind}
        self.count = 0
        self.version = 0

    def add(self, pattern: Pattern, value: Value) -> None:
        node = self._roots[pattern.kind]
        for segment in pattern.segments:
            node = node.make_child(segment)
        assert value not in node.values
        node.values[value] = None
        self.count += 1
        self.version += 1

    def remove(self, pattern: Pattern, value: Value) -> None:
        path = [self._roots[pattern.kind]]
        for segment in pattern.segments:
            child = path[-1].child(segment)
            assert child is not None
            path.append(child)
        del path[-1].values[value]
        for parent, segment, child in reversed(list(zip(path, pattern.segments, path[1:], strict=False))):
            if not child.is_unused:
                break
            parent.remove_child(segment)
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
                if (child := node.children.get(segment)) is not None:
                    following.add(child)
                if node.any_one is not None:
                    following.add(node.any_one)
            nodes = _with_empty_matches(following)
            if not nodes:
                return []
        return [value for node in nodes for value in node.values]


def _with_empty_matches(nodes: set[_Node[Value]]) -> set[_Node[Value]]:
    """Add the nodes reached by letting `>` stand for nothing."""
    reached = set(nodes)
    for node in nodes:
        while node.any_number is not None:
            node = node.any_number
            reached.add(node)
    return reached
