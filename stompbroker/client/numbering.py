"""Numbers of messages, by which a broker tells a repeated message from a new one.

Law: only what may be repeated has numbers. They are taken when it is first put on a link, so none is taken for what is
never sent, and on each link they come in their order. A number is used up whatever becomes of its message: that of one
which was refused or given up is sent with a message that goes nowhere, since a broker bounds what is left out.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from stompbroker.client.dialogue import Headers

#: How a broker that knows producers calls itself.
_KNOWS_PRODUCERS: Final = "stompbroker/"
#: An address for replies that nobody has: what is sent there is taken, and dropped.
NOWHERE: Final = "/reply-queue/" + 32 * "0"
#: Links on which one name of ours is used. What a broker remembers in memory only is left out after it was killed, once
#: for each kill at most; it allows 256 ranges.
MAX_LINKS: Final = 100

_log: Final = logging.getLogger("stompbroker.client")


@final
class Producer:
    """Who numbers messages; `Client.begin_producer` makes one.

    Invariants:
        numbers from `last` + 1 on were taken, without gaps
    """

    def __init__(self, name: str, epoch: int = 1, last: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        #: Every number up to it was published, or given up, when this began; its first message has the next one.
        self.last = last
        self._taken = last

    @property
    def is_used(self) -> bool:
        return self._taken > self.last

    def take(self, count: int) -> Numbers:
        first = self._taken + 1
        self._taken += count
        return Numbers(self, first)


class Numbers(NamedTuple):
    """Of all messages in one request, which follow each other."""

    producer: Producer
    first: int

    def headers(self, place: int) -> Headers:
        """Of the message at this place, from 0."""
        return [
            ("producer", self.producer.name),
            ("producer-epoch", str(self.producer.epoch)),
            ("producer-seq", str(self.first + place)),
        ]


@final
class Numbering:
    def __init__(self, wanted: bool | None, *, has_own: bool) -> None:
        """`wanted` None: if the broker is known to understand it. `has_own`: what has no other producer is numbered."""
        self._wanted = wanted
        #: None also once the broker has no place for it.
        self.own = _new_producer() if has_own else None
        self._links = 0
        self.is_on = False

    def connected(self, server: str) -> None:
        """To a broker that calls itself so."""
        self.is_on = server.startswith(_KNOWS_PRODUCERS) if self._wanted is None else self._wanted
        self._links += 1
        if self.own is not None and self._links % MAX_LINKS == 0:
            self.own = _new_producer()

    def farewell(self) -> Headers:
        """Of DISCONNECT: that the name of ours is done with, so that the broker need not remember it for long."""
        if not self.is_on or self.own is None or not self.own.is_used:
            return []
        return [("producer", self.own.name), ("producer-epoch", str(self.own.epoch))]

    def stop(self, reason: str) -> None:
        self.own = None
        _log.warning("%s Messages are sent without numbers from now on: what is repeated may come twice.", reason)


def _new_producer() -> Producer:
    return Producer(f"client-{secrets.token_hex(16)}")
