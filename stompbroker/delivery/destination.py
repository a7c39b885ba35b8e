"""From what a client writes after `destination:` to a kind, and a name or a pattern of names; and a tree of patterns.

Law: pure text, and the only place that parses it. `/topic/NAME` and a bare `NAME` are the same; `/queue/NAME` is
another thing. `.` and `/` separate segments alike; leading, doubled and trailing separators do not count. A segment of
a topic that *is* `*` stands for one segment, one that is `**`, `#` or `>` for zero or more, anywhere; elsewhere those
are ordinary characters. Queues have no wildcards.

What looks like a destination of another broker, or like a slip, is refused with what to write instead: taken for a
topic, it would silently separate publishers from their subscribers, or deliver to all what is meant for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Generic, TypeVar, final

from stompbroker.errors import InvalidDestination, shorten

#: Bytes of UTF-8 in a name, separators included.
MAX_NAME_BYTES: Final = 255
#: Segments in a name or pattern; bounds the work of matching.
MAX_SEGMENTS: Final = 32

#: Wildcards for any number of segments in one pattern; neighbours count as one. Each multiplies the ways to match.
MAX_ANY_NUMBER: Final = 4

#: Steps to find out whether one pattern contains another, at 25 to 80 µs each. Useful permissions take a dozen;
#: `>.a.*.*.*.*` and so on would double them with each `*`.
MAX_INCLUSION_STEPS: Final = 64
#: Characters of a destination that are looked at: it may have more than its name, since doubled separators are ignored.
_MAX_DESTINATION: Final = 4 * MAX_NAME_BYTES

ANY_ONE: Final = "*"
ANY_NUMBER: Final = ">"
_ANY_NUMBER_SPELLINGS: Final = frozenset({"**", "#", ">"})

#: The first segment of topics that hold dead letters. A pattern matches them only if it begins so too: who subscribes
#: to everything does not want what others refused.
DEAD_LETTERS: Final = "DLQ"

#: Characters of a refused destination in the message: what to write instead follows it, and must not be cut off.
_MAX_SHOWN: Final = 100
_TOPIC_PREFIX: Final = "/topic/"
QUEUE_PREFIX: Final = "/queue/"
_TEMPORARY: Final = (
    "{destination!r} means a temporary destination, which only one connection has; use /temp-queue/NAME in SUBSCRIBE "
    "or reply-to, and the reply-to of a request as the destination of its reply"
)
#: What is refused and why; the first match counts.
_LOOK_ALIKES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), text)
    for pattern, text in (
        (
            r"\s|.*\s\Z",
            "{destination!r} begins or ends with a blank, which is part of a header's value in STOMP 1.1 and 1.2; "
            "leave it out",
        ),
        (
            r".*,\s*(?:/|(?:topic|queue)s?[:/])",
            "{destination!r} means several destinations; send, or subscribe, to each of them for itself",
        ),
        (
            r".*\?[\w.]+=",
            "{destination!r} has options behind a question mark; write them as headers of the frame, such as "
            "prefetch-count:10",
        ),
        (r"/topic/?\Z", "{destination!r} names no topic; use /topic/NAME or a bare NAME"),
        (
            r"(?!(?-i:/topic/))/+topics?(?:[./:]|\Z)|topics?[/:]|/?jms[./]topic[./]|/?dynamicTopics/",
            "{destination!r} is not how a topic is written; use /topic/NAME or a bare NAME",
        ),
        (r"/queue/?\Z", "{destination!r} names no queue; use /queue/NAME"),
        (
            r"(?!(?-i:/queue/))/+queues?(?:[./:]|\Z)|queues?[/:]|/?jms[./]queue[./]|/?dynamicQueues/"
            r"|/amq(?:/|\Z)|amq/queue/",
            "{destination!r} is not how a queue is written; use /queue/NAME",
        ),
        (
            r"/?(?:(?:remote-)?temp-(?:queue|topic)|reply-queue)[/:]|/(?:temp-queue|temp-topic|reply-queue)\Z",
            _TEMPORARY,
        ),
        (
            r"/exchange(?:/|\Z)",
            "{destination!r} means an exchange, and those are not supported yet; use /topic/NAME or a bare NAME",
        ),
        (
            r"/?dsub/|/dsub\Z",
            "{destination!r} is no topic: /dsub/ID means a durable subscription, in SUBSCRIBE and UNSUBSCRIBE only",
        ),
    )
)
_SEPARATORS: Final = re.compile(r"[./]+")


@final
class DestinationKind(Enum):
    """What a destination names. Those of different kinds never meet, whatever their names."""

    #: Every subscription gets every message.
    TOPIC = "topic"
    #: Each message goes to one consumer, and is kept until then.
    QUEUE = "queue"
    #: Where replies to one connection go. Never parsed here: the connection knows its own.
    TEMPORARY = "temporary"


def key_of(kind: str, name: str) -> str:
    """One text for kind and name: `a.b` is the topic, `/queue/a.b` the queue. A name never begins with a slash."""
    return name if kind == DestinationKind.TOPIC.value else f"/{kind}/{name}"


@final
@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind, and a name or a pattern of names: segments, wildcards in their one canonical spelling."""

    segments: tuple[str, ...]
    kind: DestinationKind = DestinationKind.TOPIC

    def __str__(self) -> str:
        """As a client can write it."""
        return f"/{self.kind.value}/{self.name}"

    @property
    def is_exact(self) -> bool:
        return ANY_ONE not in self.segments and ANY_NUMBER not in self.segments

    @property
    def name(self) -> str:
        """The canonical spelling without the kind; for an exact pattern the topic's name."""
        return ".".join(self.segments)

    @property
    def key(self) -> str:
        """Unique for kind and name."""
        return self.name if self.kind is DestinationKind.TOPIC else key_of(self.kind.value, self.name)

    @property
    def is_of_dead_letters(self) -> bool:
        return self.segments[0] == DEAD_LETTERS

    @property
    def dead_letters(self) -> Pattern:
        """The topic of this one's dead letters; dead letters that die stay where they are."""
        return self if self.is_of_dead_letters else Pattern((DEAD_LETTERS, *self.segments), self.kind)

    @property
    def origin(self) -> Pattern:
        """The topic whose dead letters lie in this one."""
        return Pattern(self.segments[1:], self.kind)

    @staticmethod
    def keyed(key: str) -> Pattern:
        """The one that has this `key`."""
        kind, name = key[1:].split("/") if key.startswith("/") else (DestinationKind.TOPIC.value, key)
        return Pattern(tuple(name.split(".")), DestinationKind(kind))

    def matches(self, topic: Pattern) -> bool:
        wanted, name = self.segments, topic.segments
        if ANY_NUMBER in wanted[:-1]:
            return bool(_tree_of(self).match(topic))
        # The usual ones: no `>`, or one at the end.
        if topic.kind is not self.kind or name[0] == DEAD_LETTERS != wanted[0]:
            return False
        if wanted[-1] == ANY_NUMBER:
            wanted, name = wanted[:-1], name[: len(wanted) - 1]
        return len(name) == len(wanted) and all(map(_is_meant, wanted, name))

    def contains(self, other: Pattern) -> bool:
        """Whether every topic that `other` can mean is one that this pattern means, however long its name. False also
        if that takes too long to find out: who asks, asks for leave."""
        if other.is_exact:
            return self.matches(other)
        if self.kind is not other.kind or (self.segments[0] == DEAD_LETTERS) != (other.segments[0] == DEAD_LETTERS):
            return False
        *fixed, last = self.segments
        if last == ANY_NUMBER and ANY_ONE not in fixed and ANY_NUMBER not in fixed:
            # The usual permission, and quick whatever is asked for.
            return list(other.segments[: len(fixed)]) == fixed
        return _includes(self.segments, other.segments)


@lru_cache(maxsize=4096)
def _includes(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Read every name that `inner` means, segment by segment, and keep all places in `outer` that can have read the
    same. A segment that neither names stands for all such segments."""
    unnamed = ""
    alphabet = {segment for segment in (*outer, *inner) if segment not in (ANY_ONE, ANY_NUMBER)} | {unnamed}
    start = (_skipping(inner, {0}), _skipping(outer, {0}))
    seen, waiting = {start}, [start]
    while waiting:
        in_inner, in_outer = waiting.pop()
        for segment in alphabet:
            reached = _skipping(inner, _after(inner, in_inner, segment))
            if not reached:
                continue
            step = (reached, _skipping(outer, _after(outer, in_outer, segment)))
            if not step[1] or (len(inner) in step[0] and len(outer) not in step[1]):
                return False
            if step not in seen:
                if len(seen) >= MAX_INCLUSION_STEPS:
                    return False
                seen.add(step)
                waiting.append(step)
    return True


def _after(pattern: tuple[str, ...], places: frozenset[int], segment: str) -> set[int]:
    """Where a reader of the pattern can stand after one more segment."""
    return {
        place if pattern[place] == ANY_NUMBER else place + 1
        for place in places
        if place < len(pattern) and pattern[place] in (segment, ANY_ONE, ANY_NUMBER)
    }


def _skipping(pattern: tuple[str, ...], places: set[int]) -> frozenset[int]:
    """Also the places reached by letting `>` stand for nothing."""
    reached = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == ANY_NUMBER:
            place += 1
            reached.add(place)
    return frozenset(reached)


def _is_meant(wanted: str, segment: str) -> bool:
    return wanted in (segment, ANY_ONE)


@lru_cache(maxsize=4096)
def parse_pattern(destination: str) -> Pattern:
    """What a SUBSCRIBE, or a `[[topics]]` table, names. Raises InvalidDestination."""
    shown = shorten(destination, _MAX_SHOWN)
    for look_alike, text in _LOOK_ALIKES:
        if look_alike.match(destination):
            raise InvalidDestination(text.format(destination=shown))
    if len(destination) > _MAX_DESTINATION:
        raise InvalidDestination(f"a topic name may have {MAX_NAME_BYTES} bytes; this one has {len(destination)}")
    is_queue = destination.startswith(QUEUE_PREFIX)
    kind, noun = (DestinationKind.QUEUE, "queue") if is_queue else (DestinationKind.TOPIC, "topic")
    name = destination.removeprefix(QUEUE_PREFIX if is_queue else _TOPIC_PREFIX)
    if "\0" in name:
        raise InvalidDestination(f"a {noun} name must not contain NUL: {shown!r}")
    segments = tuple(segment for segment in _SEPARATORS.split(name) if segment)
    if segments[:1] == (DEAD_LETTERS,):
        # A topic's dead letters can be named if the topic can.
        name = ".".join(segments[1:]) or name
    size_bytes = len(name.encode("utf-8", errors="surrogatepass"))
    if size_bytes > MAX_NAME_BYTES:
        raise InvalidDestination(f"a {noun} name may have {MAX_NAME_BYTES} bytes; this one has {size_bytes}")
    if not segments:
        advice = "/queue/NAME" if is_queue else "/topic/NAME or a bare NAME"
        raise InvalidDestination(f"{shown!r} names no {noun}; use {advice}")
    if len(segments) > MAX_SEGMENTS + (segments[0] == DEAD_LETTERS):
        raise InvalidDestination(f"a {noun} name may have {MAX_SEGMENTS} segments; this one has {len(segments)}")
    canonical = _canonical(segments)
    if is_queue and not Pattern(canonical).is_exact:
        raise InvalidDestination(
            f"{shown!r} has a wildcard, and a queue has one name; only topics can be subscribed to by *, **, # and >"
        )
    if canonical.count(ANY_NUMBER) > MAX_ANY_NUMBER:
        raise InvalidDestination(
            f"a pattern may hold {MAX_ANY_NUMBER} separate wildcards for any number of segments (**, # or >); "
            f"{shown!r} holds {canonical.count(ANY_NUMBER)}"
        )
    return Pattern(canonical, kind)


def _canonical(segments: tuple[str, ...]) -> tuple[str, ...]:
    """One spelling for patterns that mean the same: neighbouring wildcards become their `*`, then at most one `>`."""
    found: list[str] = []
    for segment in segments:
        wildcard = ANY_NUMBER if segment in _ANY_NUMBER_SPELLINGS else segment
        if found and found[-1] == ANY_NUMBER and wildcard == ANY_ONE:
            found.insert(-1, ANY_ONE)
        elif not (found and found[-1] == ANY_NUMBER == wildcard):
            found.append(wildcard)
    return tuple(found)


def parse_topic_name(destination: str) -> Pattern:
    """What a SEND names: one topic, never a pattern. Raises InvalidDestination."""
    pattern = parse_pattern(destination)
    if not pattern.is_exact:
        raise InvalidDestination(
            f"{shorten(destination, _MAX_SHOWN)!r} is a pattern; a message is sent to one topic, only SUBSCRIBE may "
            "use *, **, # and >"
        )
    return pattern


def parse_shown_topic(given: str) -> Pattern:
    """What an operator names: a topic as we show it, or as in a SEND. Raises InvalidDestination."""
    return parse_topic_name(given if given.startswith("/") else _TOPIC_PREFIX + given)


Value = TypeVar("Value")


@final
class _Node(Generic[Value]):
    __slots__ = ("children", "repeats", "values")

    def __init__(self, *, repeats: bool = False) -> None:
        #: Whether this node stands behind a `>` and may swallow further segments.
        self.repeats = repeats
        #: By segment; wildcards stand for themselves, since no name contains them as a segment.
        self.children: dict[str, _Node[Value]] = {}
        #: In the order they were added.
        self.values: dict[Value, None] = {}


@final
class PatternTree(Generic[Value]):
    """Wildcard subscriptions, by the topics they match: a tree of segments for each kind of destination.

    Matching carries a set of nodes along the name, so its cost grows with the name's length and the branches that
    match, not with the number of patterns.

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
            if segment not in node.children:
                node.children[segment] = _Node(repeats=segment == ANY_NUMBER)
            node = node.children[segment]
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
            # Wildcards do not stand for that segment.
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


@lru_cache(maxsize=64)
def _tree_of(pattern: Pattern) -> PatternTree[Pattern]:
    """With this pattern alone."""
    tree: PatternTree[Pattern] = PatternTree()
    tree.add(pattern, pattern)
    return tree
