"""Which messages a subscriber gets.

Law: the reason lies in the message: it has expired, it is for one other subscription alone, or the subscriber published
it itself and does not want that. Hot path: mostly all messages of a run have one origin, and one look at it is enough.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import OffsetRanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.commitlog import Log
    from stompbroker.message import Message, Origin

_origin_of: Final = attrgetter("origin")


@final
class Selection:
    """For one subscriber, at one moment."""

    __slots__ = ("_now_ns", "_number", "_own")

    def __init__(self, now_ns: int, number: int | None, own: str | None) -> None:
        self._now_ns = now_ns
        #: The subscriber's number in the store, if it has one.
        self._number = number
        #: The subscriber's name as a publisher, if it does not want its own messages.
        self._own = own

    def takes_all(self, messages: Sequence[Message]) -> bool:
        """Whether the origins alone say that the subscriber gets every one of them."""
        return all(self._takes_origin(origin) for origin in set(map(_origin_of, messages)))

    def takes(self, message: Message) -> bool:
        """Whether the message is for the subscriber, unless it `has_expired`."""
        only_for, own = message.origin.only_for, self._own
        return (only_for is None or only_for == self._number) and (own is None or message.origin.publisher != own)

    def has_expired(self, message: Message) -> bool:
        return message.has_expired(self._now_ns)

    def _takes_origin(self, origin: Origin) -> bool:
        return origin.is_for_all_and_ever and (self._own is None or origin.publisher != self._own)

    def meant_within(self, log: Log, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ranges, without the messages of the log that are not for the subscriber."""
        foreign = OffsetRanges()
        for start, stop in ranges:
            position = start
            while position < stop:
                first, messages = log.read(position, stop - position)
                for offset, message in enumerate(messages, first):
                    if not self.takes(message):
                        foreign.add(offset, offset + 1)
                position = first + max(1, len(messages))
        return [gap for start, stop in ranges for gap in foreign.gaps(start, stop)]
