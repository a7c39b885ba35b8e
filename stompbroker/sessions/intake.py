"""Whether more is read from a client, and how long it may be that nothing is.

Law: looks at what is kept for one client and compares. The worker stops reading, and the session gives the client up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from stompbroker.changes import Lane
    from stompbroker.clock import Clock
    from stompbroker.delivery import Gate
    from stompbroker.sessions.consumers import Consumers
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.parking import Parking

__all__ = ["Intake"]

#: What of one client may be on its way through the journal before no more is read from it. A few chunks, so that the
#: next batch gathers while one is written.
MAX_LANE_BYTES: Final = 2 * 1024 * 1024


@final
class Intake:
    """
    Invariants:
        _stopped_since_ns is None exactly if there was room when it was last noted
    """

    __slots__ = ("_lane", "_outbox", "_parking", "_sent_when_stopped", "_stopped_since_ns", "_timeout_ns")

    def __init__(self, parking: Parking, lane: Lane, outbox: Outbox, timeout_ns: int) -> None:
        self._parking = parking
        self._lane = lane
        self._outbox = outbox
        self._timeout_ns = timeout_ns
        #: Since when nothing is read, and how much the client had been sent then.
        self._stopped_since_ns: int | None = None
        self._sent_when_stopped = 0

    @property
    def has_room(self) -> bool:
        """False while its parking is full, too much of it is on its way through the journal, or it does not read its
        receipts."""
        return (
            not self._parking.is_full and self._lane.size_bytes < MAX_LANE_BYTES and not self._outbox.is_owing_too_much
        )

    @property
    def check_at_ns(self) -> int | None:
        """When to check again; None while there is room."""
        return None if self._stopped_since_ns is None else self._stopped_since_ns + self._timeout_ns

    def note(self, clock: Clock) -> bool:
        """Whether there has just ceased to be room. The time is asked for only then: this is called for every chunk."""
        if self.has_room:
            self._stopped_since_ns = None
            return False
        if self._stopped_since_ns is not None:
            return False
        self._stop(clock.now_ns())
        return True

    def _stop(self, now_ns: int) -> None:
        self._stopped_since_ns = now_ns
        self._sent_when_stopped = self._outbox.sent_bytes

    def check(self, now_ns: int, held_by: Gate | None, consumers: Consumers) -> None:
        """Raise PeerViolation if the client has not been read for long and waits for itself, or does not take what it
        asked for."""
        if self.check_at_ns is None or now_ns < self.check_at_ns:
            return
        if self._outbox.is_owing_too_much and self._outbox.sent_bytes == self._sent_when_stopped:
            raise PeerViolation(
                "receipts are not read",
                f"{self._outbox.size_bytes} bytes wait to be read by this client, and it took none of them for "
                f"{self._timeout_ns / NANOSECONDS:g} s; read what the broker sends",
            )
        in_flight = consumers.in_flight
        if self._parking.is_full and in_flight and held_by is not None and held_by.waits_for_consumers:
            raise PeerViolation(
                "held back too long",
                f"{held_by.why}, {self._parking.size_bytes} bytes of what this connection sent wait for "
                f"it, and {in_flight} deliveries to it are not acknowledged; acknowledge them, or "
                "publish on another connection",
            )
        self._stop(now_ns)
