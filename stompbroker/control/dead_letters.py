"""Dead letters, for operators.

Law: letters are looked at a page at a time, and each answer says where the next one begins. Redriving removes a letter
and publishes its message in one step. One operator moves letters at a time, so that none is redriven twice.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stompbroker.changes import Appended, Purged, provenance_of, redriven
from stompbroker.control.kept import dead_letter_count
from stompbroker.control.listing import seen
from stompbroker.control.records import Record, Shown, alike
from stompbroker.control.request import Method, NotFound, Param, Unavailable, make_durable, named_topic
from stompbroker.delivery import withdrawing
from stompbroker.ids import Offset
from stompbroker.stomp import tail_headers

if TYPE_CHECKING:
    from stompbroker.changes import Provenance
    from stompbroker.control.caller import Caller
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Pattern, Topic
    from stompbroker.message import Message

#: Letters in one answer, and letters that are redriven or purged in one step.
MAX_LISTED: Final = 1000
MAX_CHANGED: Final = 100


class Letter(NamedTuple):
    offset: Offset
    message: Message
    provenance: Provenance


class _Piece(NamedTuple):
    letters: list[Letter]
    after: int
    is_complete: bool

    def answer(self, **fields: Any) -> dict[str, Any]:
        return {**fields, "after": self.after, "is_complete": self.is_complete}


def _piece_of(name: str, **fields: Any) -> Record[Any]:
    """What `_Piece.answer` makes."""
    shown: dict[str, Shown[Any]] = {
        each: kind if isinstance(kind, Shown) else Shown(kind) for each, kind in fields.items()
    }
    return Record(name, {**shown, "after": Shown(int, says="Where to go on."), "is_complete": Shown(bool)})


_LEAVE: Final[dict[str, Shown[Any]]] = {
    "can_redrive": Shown(bool, says="Whether the caller may redrive them."),
    "can_purge": Shown(bool, says="Whether the caller may purge them."),
}
_TOPIC_OF_LETTERS: Final[Record[Any]] = Record(
    "DeadLetterTopic",
    {**alike(str, "topic", "destination"), **alike(int, "letters", "bytes"), "oldest_died_at": Shown(str | None)},
)
_LETTER: Final[Record[Letter]] = Record(
    "Letter",
    {
        "offset": Shown(int),
        "message_id": Shown(str, lambda _, letter: letter.message.message_id.decode()),
        "original_message_id": Shown(str, lambda _, letter: letter.provenance.message_id),
        "subscription": Shown(str, lambda _, letter: letter.provenance.subscription),
        "is_durable": Shown(bool, lambda _, letter: letter.provenance.subscription_number is not None),
        "attempts": Shown(int, lambda _, letter: letter.provenance.attempts),
        "cause": Shown(str, lambda _, letter: letter.provenance.cause),
        "reason": Shown(str, lambda _, letter: letter.provenance.reason),
        "published_at": Shown(str, lambda _, letter: letter.provenance.published_at),
        "first_attempt_at": Shown(str | None, lambda _, letter: letter.provenance.first_attempt_at or None),
        "last_attempt_at": Shown(str | None, lambda _, letter: letter.provenance.last_attempt_at or None),
        "died_at": Shown(str, lambda _, letter: letter.provenance.died_at),
        "body_bytes": Shown(int, lambda _, letter: letter.message.body_bytes),
    },
)
_WHOLE_LETTER: Final[Record[Letter]] = Record(
    "DeadLetter",
    {
        **_LETTER.fields,
        "destination": Shown(str, lambda _, letter: letter.provenance.destination),
        "headers": Shown(list[list[str]], lambda _, letter: [list(pair) for pair in tail_headers(letter.message.tail)]),
        "body": Shown(str, lambda _, letter: b64encode(letter.message.body).decode(), "In base64."),
        **_LEAVE,
    },
)
_SKIPPED: Final[Record[Any]] = Record("Skipped", {"offset": Shown(int), "why": Shown(str)})


# Looking --------------------------------------------------------------------------------------------------------------


async def _topics(broker: BrokerParts, caller: Caller) -> dict[str, Any]:
    """Topics that have dead letters."""
    found = []
    topics = broker.registry.topics_of_dead_letters
    for topic in await seen(broker, caller, topics, lambda topic: topic.destination):
        extent = await broker.kept.extent(topic, 0, topic.log.end_offset)
        letters = dead_letter_count(topic) if extent is None or topic.is_queue else extent.messages
        if not letters:
            continue
        oldest = await broker.kept.first_from(topic, Offset(0))
        provenance = None if oldest is None else provenance_of(oldest)
        found.append(
            {
                "topic": topic.destination.origin.key,
                "destination": str(topic.destination),
                "letters": letters,
                "bytes": topic.log.size_bytes if extent is None else extent.tail_bytes,
                "oldest_died_at": None if provenance is None else provenance.died_at,
            }
        )
    return {"topics": sorted(found, key=lambda each: str(each["topic"]))}


async def _list(broker: BrokerParts, caller: Caller, topic: str, **wanted: Any) -> dict[str, Any]:
    """Dead letters of a topic, a piece at a time."""
    where = _find_topic(broker, caller, topic)
    piece = await _look(broker, where, **wanted)
    letters = [_LETTER.describe(broker, letter) for letter in piece.letters]
    return piece.answer(letters=letters, **_leave(caller, where))


async def _show(broker: BrokerParts, caller: Caller, topic: str, offset: Offset) -> dict[str, Any]:
    """One dead letter, whole."""
    where = _find_topic(broker, caller, topic)
    message = await broker.kept.get(where, offset)
    provenance = None if message is None else provenance_of(message)
    if message is None or provenance is None or _is_consumed(where, offset):
        raise NotFound(f"there is no dead letter at offset {offset} of {where.destination.key}")
    return _WHOLE_LETTER.describe(broker, Letter(offset, message, provenance), **_leave(caller, where))


def _leave(caller: Caller, topic: Topic) -> dict[str, bool]:
    """What the caller may do with the letters of a topic."""
    return {"can_redrive": caller.changes(*_redriven_between(topic)), "can_purge": caller.changes(topic.destination)}


def _redriven_between(topic: Topic) -> list[Pattern]:
    """The topic of letters and the one they come from, to which redriving publishes. DLQ alone has no such one."""
    destination = topic.destination
    return [destination, *([destination.origin] if destination.origin.segments else [])]


def _find_topic(broker: BrokerParts, caller: Caller, name: str) -> Topic:
    """By its own name, or by that of the topic the letters come from. It must be one that the caller sees."""
    pattern = named_topic(name).dead_letters
    topic = broker.registry.topics.get(pattern.key)
    if topic is None or not caller.sees(pattern):
        shown = pattern.origin.key if pattern.origin.segments else pattern.key
        raise NotFound(f"there are no dead letters of {shown!r}; list them with: stompbroker dead-letters list")
    return topic


async def _look(
    broker: BrokerParts,
    topic: Topic,
    *,
    after: int = -1,
    up_to: int | None = None,
    limit: int = MAX_CHANGED,
    offset: int | None = None,
    subscription: str | None = None,
    reason: str = "",
    message_id: str | None = None,
) -> _Piece:
    """The next letters behind `after` and not behind `up_to` that match the rest. Looks at one page."""
    if offset is not None:
        after = max(after, offset - 1)
    end = topic.log.end_offset if up_to is None else min(topic.log.end_offset, Offset(up_to + 1))
    page = await broker.kept.page(topic, after + 1, end)
    letters: list[Letter] = []
    for place, message in page:
        if not after < place < end or _is_consumed(topic, place):
            continue
        provenance = provenance_of(message)
        if (
            provenance is not None
            and offset in (None, place)
            and subscription in (None, provenance.subscription)
            and message_id in (None, provenance.message_id)
            and reason.lower() in provenance.reason.lower()
        ):
            letters.append(Letter(place, message, provenance))
            if len(letters) == limit:
                return _Piece(letters, place, is_complete=place + 1 >= end)
    is_complete = page.end_offset >= end or offset is not None
    return _Piece(letters, max(after, page.end_offset - 1), is_complete)


def _is_consumed(topic: Topic, offset: Offset) -> bool:
    """Whether a consumer of a queue's dead letters has settled it: it is gone, although the collector has not been
    there. Dead letters of a topic stay, whoever reads them."""
    return topic.is_queue and any(reading.cursor.is_settled(offset, offset + 1) for reading in topic.readings.values())


# Changing -------------------------------------------------------------------------------------------------------------


async def _redrive(
    broker: BrokerParts, caller: Caller, topic: str, to: str = "subscriber", **wanted: Any
) -> dict[str, Any]:
    """Publish what letters are about once more, and take them away."""
    letters_topic = _find_topic(broker, caller, topic)
    caller.check_changes(*_redriven_between(letters_topic))
    async with broker.moving_letters:
        piece = await _look(broker, letters_topic, **wanted)
        now_ns = broker.clock.now_ns()
        origin = broker.queues.topic(letters_topic.destination.origin, now_ns)
        messages: list[Message] = []
        gone: list[Letter] = []
        skipped = []
        for letter in piece.letters:
            why_not = _why_not(broker, letter, origin, to)
            if why_not is not None:
                skipped.append({"offset": letter.offset, "why": why_not})
                continue
            is_for_one = to == "subscriber" and not origin.is_queue
            only_for = letter.provenance.subscription_number if is_for_one else None
            message_id = broker.message_ids.make()
            messages.append(redriven(letter.message, message_id=message_id, only_for=only_for, now_ns=now_ns))
            gone.append(letter)
        if messages:
            origin.is_choosy = origin.is_choosy or to == "subscriber"
            await _remove(broker, letters_topic, gone, {origin: messages})
    return piece.answer(redriven=len(messages), skipped=skipped)


def _why_not(broker: BrokerParts, letter: Letter, topic: Topic, to: str) -> str | None:
    """Why it cannot be redriven there; None if it can."""
    if topic.is_queue:
        return None
    if to == "topic":
        if not topic.readings and not topic.is_stored:
            return f"nobody subscribes to {topic.name}, so it would be lost"
        return None
    wanted = letter.provenance.subscription_number
    if wanted is None:
        return f"its subscription {letter.provenance.subscription!r} was not durable; redrive it to the topic"
    if not any(each.store_id == wanted for each in broker.registry.durable.values()):
        return f"its subscription {letter.provenance.subscription!r} is gone; redrive it to the topic"
    return None


async def _purge(broker: BrokerParts, caller: Caller, topic: str, **wanted: Any) -> dict[str, Any]:
    """Let letters go for good."""
    letters_topic = _find_topic(broker, caller, topic)
    caller.check_changes(letters_topic.destination)
    async with broker.moving_letters:
        piece = await _look(broker, letters_topic, **wanted)
        if piece.letters:
            await _remove(broker, letters_topic, piece.letters, {})
    return piece.answer(purged=len(piece.letters))


async def _remove(
    broker: BrokerParts, topic: Topic, letters: list[Letter], published: dict[Topic, list[Message]]
) -> None:
    """Remove letters and publish messages in one step; returns when that is durable. Raises ControlError."""
    gate = broker.journal.gate
    # Where space is low, a mere deletion makes room.
    if gate.is_blocked and (published or not gate.waits_for_consumers):
        raise Unavailable(f"{gate.why}; try again later")
    now_ns = broker.clock.now_ns()
    for letter in letters:
        withdrawing.skip(topic, letter.offset, letter.message, now_ns)
    purged = Purged(topic, {letter.offset: letter.message for letter in letters})
    await make_durable(broker.journal, [*(Appended(*run) for run in published.items()), purged], what="take it")


_TOPIC: Final = {"topic": Param(says="The topic that they come from, or the queue /queue/NAME.", is_required=True)}
_CHANGED: Final = {
    **_TOPIC,
    "subscription": Param(says="Only letters of this subscription, by its key."),
    "reason": Param(says="Only letters whose reason contains this text."),
    "message_id": Param(says="Only letters about this message."),
    "offset": Param(says="An offset.", kind=int),
    "after": Param(says="Where the answer before stopped.", kind=int, low=-1),
    "up_to": Param(says="The last offset that is meant.", kind=int),
    "limit": Param(says="Letters at once; 100 if not given.", kind=int, low=1, high=MAX_CHANGED),
}
_LISTED: Final = {
    **_CHANGED,
    "limit": Param(says="Letters in one answer; 100 if not given.", kind=int, low=1, high=MAX_LISTED),
}
METHODS: Final = {
    "dead_letter_topics": Method(_topics, Record("DeadLetterTopics", {"topics": Shown([_TOPIC_OF_LETTERS])})),
    "dead_letters": Method(_list, _piece_of("DeadLetters", letters=[_LETTER], **_LEAVE), _LISTED),
    "dead_letter": Method(
        _show, _WHOLE_LETTER, {**_TOPIC, "offset": Param(says="Its offset.", kind=int, is_required=True)}
    ),
    "redrive_dead_letters": Method(
        _redrive,
        _piece_of("Redriven", redriven=int, skipped=[_SKIPPED]),
        {**_CHANGED, "to": Param(says="To whom; subscriber if not given.", choices=("subscriber", "topic"))},
    ),
    "purge_dead_letters": Method(_purge, _piece_of("Purged", purged=int), _CHANGED),
}
