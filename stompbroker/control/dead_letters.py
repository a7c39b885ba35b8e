"""Dead letters, for operators.

Law: looks at letters in pieces, and names where it stopped, so that whoever asks can go on, slower or not at all. What
is redriven leaves the dead letters and is published in one step, or neither happens; one at a time, so that no letter
is redriven twice.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import trio

from stompbroker.changes import Appended, Purged, Unit, provenance_of, redriven
from stompbroker.control.request import (
    Completion,
    ControlError,
    NotFound,
    Unavailable,
    named_topic,
    number,
    optional_text,
)
from stompbroker.delivery import DEAD_LETTERS, withdrawing
from stompbroker.ids import Offset
from stompbroker.stomp import tail_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.changes import Journal, Provenance
    from stompbroker.clock import Clock
    from stompbroker.control.kept import KeptMessages
    from stompbroker.control.request import Methods
    from stompbroker.delivery import Registry, Topic
    from stompbroker.message import Message
    from stompbroker.message_ids import MessageIds

__all__ = ["DeadLetterMethods"]

#: Letters in one answer, and letters that are redriven or purged in one step.
MAX_LISTED: Final = 1000
MAX_CHANGED: Final = 100
_FILTER: Final = frozenset({"subscription", "reason", "message_id", "offset"})
_PIECE: Final = frozenset({"topic", "after", "up_to", "limit"})


class Letter(NamedTuple):
    offset: Offset
    message: Message
    provenance: Provenance


@final
@dataclass(frozen=True, slots=True)
class _Filter:
    subscription: str | None
    reason: str | None
    message_id: str | None
    offset: int | None

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> _Filter:
        offset = params.get("offset")
        return cls(
            optional_text("subscription", params.get("subscription")),
            optional_text("reason", params.get("reason")),
            optional_text("message_id", params.get("message_id")),
            None if offset is None else number("offset", offset, 0, 1 << 62),
        )

    def takes(self, letter: Letter) -> bool:
        provenance = letter.provenance
        return (
            self.subscription in (None, provenance.subscription)
            and self.message_id in (None, provenance.message_id)
            and self.offset in (None, letter.offset)
            and (self.reason is None or self.reason.lower() in provenance.reason.lower())
        )


class _Piece(NamedTuple):
    """Letters that were looked for, and where to go on."""

    letters: list[Letter]
    after: int
    is_complete: bool


@final
class DeadLetterMethods:
    def __init__(
        self, registry: Registry, journal: Journal, kept: KeptMessages, message_ids: MessageIds, clock: Clock
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._kept = kept
        self._message_ids = message_ids
        self._clock = clock
        self._turn = trio.Lock()
        self.methods: Methods = {
            "dead_letter_topics": (self._topics, frozenset()),
            "dead_letters": (self._list, _PIECE | _FILTER),
            "dead_letter": (self._show, frozenset({"topic", "offset"})),
            "redrive_dead_letters": (self._redrive, _PIECE | _FILTER | {"to"}),
            "purge_dead_letters": (self._purge, _PIECE | _FILTER),
        }

    # Looking ---------------------------------------------------------------------------------------------------------

    async def _topics(self) -> dict[str, Any]:
        found = []
        for topic in [topic for topic in self._registry.topics.values() if topic.is_of_dead_letters]:
            extent = await self._kept.extent(topic, 0, topic.log.end_offset)
            letters = topic.log.message_count if extent is None else extent.messages
            if not letters:
                continue
            oldest = await self._kept.first_from(topic, Offset(0))
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

    async def _list(self, **params: Any) -> dict[str, Any]:
        topic = self._find_topic(params.get("topic"))
        limit = number("limit", params.get("limit", MAX_CHANGED), 1, MAX_LISTED)
        piece = await self._look(topic, params, limit)
        return {
            "letters": [_described(letter) for letter in piece.letters],
            "after": piece.after,
            "is_complete": piece.is_complete,
        }

    async def _show(self, topic: object = None, offset: object = None) -> dict[str, Any]:
        where, at = self._find_topic(topic), Offset(number("offset", offset, 0, 1 << 62))
        message = await self._kept.get(where, at)
        provenance = None if message is None else provenance_of(message)
        if message is None or provenance is None:
            raise NotFound(f"there is no dead letter at offset {at} of {where.name}")
        return {
            **_described(Letter(at, message, provenance)),
            "destination": provenance.destination,
            "headers": [list(pair) for pair in tail_headers(message.tail)],
            "body": b64encode(message.body).decode(),
        }

    # Changing --------------------------------------------------------------------------------------------------------

    async def _redrive(self, **params: Any) -> dict[str, Any]:
        to = params.get("to", "subscriber")
        if to not in ("subscriber", "topic"):
            raise ControlError(f"to is subscriber or topic, not {to!r}")
        letters_topic = self._find_topic(params.get("topic"))
        limit = number("limit", params.get("limit", MAX_CHANGED), 1, MAX_CHANGED)
        async with self._turn:
            piece = await self._look(letters_topic, params, limit)
            topic = self._registry.topic(letters_topic.destination.origin, self._clock.now_ns())
            messages: list[Message] = []
            gone: list[Letter] = []
            skipped = []
            for letter in piece.letters:
                why_not = self._why_not(letter, topic, to)
                if why_not is not None:
                    skipped.append({"offset": letter.offset, "why": why_not})
                    continue
                only_for = letter.provenance.subscription_number if to == "subscriber" else None
                now_ns = self._clock.now_ns()
                message_id = self._message_ids.make()
                messages.append(redriven(letter.message, message_id=message_id, only_for=only_for, now_ns=now_ns))
                gone.append(letter)
            if messages:
                topic.is_choosy = topic.is_choosy or to == "subscriber"
                await self._take_away(letters_topic, gone, {topic: messages})
        return {
            "redriven": len(messages),
            "skipped": skipped,
            "after": piece.after,
            "is_complete": piece.is_complete,
        }

    def _why_not(self, letter: Letter, topic: Topic, to: str) -> str | None:
        if to == "topic":
            if not topic.readings and not topic.is_stored:
                return f"nobody subscribes to {topic.name}, so it would be lost"
            return None
        wanted = letter.provenance.subscription_number
        if wanted is None:
            return f"its subscription {letter.provenance.subscription!r} was not durable; redrive it to the topic"
        if not any(each.store_id == wanted for each in self._registry.durable.values()):
            return f"its subscription {letter.provenance.subscription!r} is gone; redrive it to the topic"
        return None

    async def _purge(self, **params: Any) -> dict[str, Any]:
        topic = self._find_topic(params.get("topic"))
        limit = number("limit", params.get("limit", MAX_CHANGED), 1, MAX_CHANGED)
        async with self._turn:
            piece = await self._look(topic, params, limit)
            if piece.letters:
                await self._take_away(topic, piece.letters, {})
        return {"purged": len(piece.letters), "after": piece.after, "is_complete": piece.is_complete}

    async def _take_away(self, topic: Topic, letters: list[Letter], instead: dict[Topic, list[Message]]) -> None:
        """Returns when it is durable, and with it what is published instead. Raises ControlError if it cannot be."""
        gate = self._journal.gate
        # What only deletes makes room where that is what is missing.
        if gate.is_blocked and (instead or not gate.waits_for_consumers):
            raise Unavailable(f"{self._journal.gate.why}; try again later")
        now_ns = self._clock.now_ns()
        for letter in letters:
            withdrawing.skip(topic, letter.offset, letter.message, now_ns)
        completion = Completion("take it")
        purged = Purged(topic, {letter.offset: letter.message for letter in letters})
        effects = [*(Appended(*published) for published in instead.items()), purged]
        self._journal.submit(Unit(effects, then=completion.finish, refused=completion.refuse))
        await completion.wait()

    # Finding ---------------------------------------------------------------------------------------------------------

    def _find_topic(self, name: object) -> Topic:
        """The topic of dead letters that is meant by its own name or by that of the topic they come from."""
        pattern = named_topic(name).dead_letters
        topic = self._registry.topics.get(pattern.key)
        if topic is None:
            shown = pattern.key.removeprefix(f"{DEAD_LETTERS}.")
            raise NotFound(f"there are no dead letters of {shown!r}; list them with: stompbroker dead-letters list")
        return topic

    async def _look(self, topic: Topic, params: Mapping[str, Any], limit: int) -> _Piece:
        """The next letters that are meant, behind `after` and not behind `up_to`: one page is looked at."""
        wanted = _Filter.read(params)
        after = number("after", params.get("after", -1), -1, 1 << 62)
        if wanted.offset is not None:
            after = max(after, wanted.offset - 1)
        up_to = params.get("up_to")
        end = topic.log.end_offset
        if up_to is not None:
            end = min(end, Offset(number("up_to", up_to, 0, 1 << 62) + 1))
        page = await self._kept.page(topic, after + 1, end)
        letters: list[Letter] = []
        for offset, message in page:
            if not after < offset < end:
                continue
            provenance = provenance_of(message)
            if provenance is not None and wanted.takes(letter := Letter(offset, message, provenance)):
                letters.append(letter)
                if len(letters) == limit:
                    return _Piece(letters, offset, is_complete=offset + 1 >= end)
        is_complete = page.end_offset >= end or wanted.offset is not None
        return _Piece(letters, max(after, page.end_offset - 1), is_complete)


def _described(letter: Letter) -> dict[str, Any]:
    provenance = letter.provenance
    return {
        "offset": letter.offset,
        "message_id": letter.message.message_id.decode(),
        "original_message_id": provenance.message_id,
        "subscription": provenance.subscription,
        "is_durable": provenance.subscription_number is not None,
        "attempts": provenance.attempts,
        "cause": provenance.cause,
        "reason": provenance.reason,
        "published_at": provenance.published_at,
        "first_attempt_at": provenance.first_attempt_at or None,
        "last_attempt_at": provenance.last_attempt_at or None,
        "died_at": provenance.died_at,
        "body_bytes": letter.message.body_bytes,
    }
