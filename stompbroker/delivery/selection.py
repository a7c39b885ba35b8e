"""What the origins of messages say about who gets them, and in which order.

Law: looks and changes nothing. Hot path: mostly all messages of a run have one origin, and one look at it is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import OffsetRanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.commitlog import Log
    from stompbroker.message import Message

_origin_of: Final = attrgetter("origin")


def has_keys(messages: Sequence[Message]) -> bool:
    """Whether any of them has a key, that orders it in groups."""
    return any(origin.group_key is not None for origin in set(map(_origin_of, messages)))


@final
@dataclass(slots=True, eq=False)
class Selection:
    """Which messages a subscriber gets: not those for one other subscription alone, nor its own if it wants none."""

    #: The subscriber's number in the store, if it has one.
    _number: int | None
    #: The subscriber's name as a publisher, if it does not want its own messages.
    _own: str | None

    def takes_all(self, messages: Sequence[Message]) -> bool:
        """Whether the origins alone say that the subscriber gets every one of them."""
        own = self._own
        return all(
            origin.is_for_all_and_ever and (own is None or origin.publisher != own)
            for origin in set(map(_origin_of, messages))
        )

    def takes(self, message: Message) -> bool:
        """Whether the message is for the subscriber, unless it has expired."""
        only_for, own = message.origin.only_for, self._own
        return (only_for is None or only_for == self._number) and (own is None or message.origin.publisher != own)

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
