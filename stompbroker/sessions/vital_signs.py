"""When a client was last heard of, and when it must be.

Law: the times of one connection. It compares and says what is due; acting on it is the session's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from stompbroker.stomp import HeartBeats

__all__ = ["VitalSigns"]

#: We look this many times per interval whether a heart-beat is due, so that none is later than two thirds of it.
LOOKS_PER_INTERVAL: Final = 3
_NS_PER_MS: Final = 1_000_000


@final
class VitalSigns:
    __slots__ = ("_connect_by_ns", "_look_ns", "_put_at_last_look", "_silence_ns", "last_received_ns")

    def __init__(self, now_ns: int, connect_timeout_ns: int) -> None:
        self._connect_by_ns: int | None = now_ns + connect_timeout_ns
        #: How long the client may be silent; 0 means for ever.
        self._silence_ns = 0
        #: How often we look whether to send a heart-beat; 0 means never.
        self._look_ns = 0
        self._put_at_last_look = 0
        self.last_received_ns = now_ns

    def connected(self, heart_beats: HeartBeats, margin: float) -> None:
        self._connect_by_ns = None
        self._silence_ns = int(heart_beats.from_client_ms * margin * _NS_PER_MS)
        self._look_ns = heart_beats.to_client_ms * _NS_PER_MS // LOOKS_PER_INTERVAL

    def check(self, now_ns: int, *, is_reading: bool) -> None:
        """Raise PeerViolation if the client is overdue. Nothing is demanded of a client we do not read from."""
        if self._connect_by_ns is not None and now_ns >= self._connect_by_ns:
            raise PeerViolation("not connected in time", "CONNECT or STOMP must be the first frame, and come at once")
        if not is_reading:
            self.last_received_ns = now_ns
        elif self._silence_ns and now_ns - self.last_received_ns >= self._silence_ns:
            raise PeerViolation(
                "heart-beat missing", f"nothing was received for {self._silence_ns / 1e9:g} s, more than was agreed"
            )

    def owes_heart_beat(self, put_bytes: int) -> bool:
        """Whether nothing was put into the outbox since the last look. `put_bytes`: how much ever was."""
        is_due = self._look_ns > 0 and put_bytes == self._put_at_last_look
        self._put_at_last_look = put_bytes + is_due
        return is_due

    def next_look_ns(self, now_ns: int) -> int | None:
        """When to check again; None if time has no more to say."""
        due = []
        if self._connect_by_ns is not None:
            due.append(self._connect_by_ns)
        if self._silence_ns:
            due.append(self.last_received_ns + self._silence_ns)
        if self._look_ns:
            due.append(now_ns + self._look_ns)
        return min(due, default=None)
