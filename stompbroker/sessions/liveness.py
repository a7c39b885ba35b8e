"""Heart-beats and the connect timeout of one connection.

Law: the times of one connection. It compares and says what is due; the session acts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from stompbroker.stomp import HeartBeats

__all__ = ["Liveness"]

#: A heart-beat is sent after this part of the agreed interval without a frame: early enough for a slow network, late
#: enough for clients that read until nothing has come for a while.
BEAT_AT: Final = 0.75
#: How often, in that time, it is checked whether something was sent. Frames less than one check apart make heart-beats
#: unnecessary.
LOOKS_PER_BEAT: Final = 2
_NS_PER_MS: Final = 1_000_000


@final
class Liveness:
    __slots__ = (
        "_beat_ns",
        "_connect_by_ns",
        "_looked_at_ns",
        "_put_at_last_look",
        "_quiet_since_ns",
        "_silence_ns",
        "last_received_ns",
    )

    def __init__(self, now_ns: int, connect_timeout_ns: int) -> None:
        self._connect_by_ns: int | None = now_ns + connect_timeout_ns
        #: How long the client may be silent; 0 means for ever.
        self._silence_ns = 0
        #: How long we may send nothing before a heart-beat is due; 0 means for ever.
        self._beat_ns = 0
        #: When we last looked whether one is due, and how many bytes had been put into the outbox by then.
        self._looked_at_ns = now_ns
        self._put_at_last_look = 0
        #: The last frame was put into the outbox at this time or later.
        self._quiet_since_ns = now_ns
        self.last_received_ns = now_ns

    def connected(self, heart_beats: HeartBeats, margin: float) -> None:
        self._connect_by_ns = None
        self._silence_ns = int(heart_beats.from_client_ms * margin * _NS_PER_MS)
        self._beat_ns = int(heart_beats.to_client_ms * BEAT_AT * _NS_PER_MS)
        self._looked_at_ns = self.last_received_ns

    def check(self, now_ns: int, *, is_reading: bool) -> None:
        """Raise PeerViolation if the client is overdue. Nothing is demanded of a client we do not read from."""
        if self._connect_by_ns is not None and now_ns >= self._connect_by_ns:
            raise PeerViolation("not connected in time", "CONNECT or STOMP must be the first frame, and come at once")
        if not is_reading:
            self.last_received_ns = now_ns
        elif self._silence_ns and now_ns - self.last_received_ns >= self._silence_ns:
            raise PeerViolation(
                "heart-beat missing",
                f"nothing was received for {self._silence_ns / 1e9:g} s, more than was agreed; "
                "send line feeds, or agree on a longer interval",
            )

    def owes_heart_beat(self, now_ns: int, put_bytes: int) -> bool:
        """Whether a heart-beat has to be put into the outbox now. `put_bytes`: how much ever was put there.

        When exactly something was put is not known, only between which two looks; the earlier one counts.
        """
        if put_bytes != self._put_at_last_look:
            self._put_at_last_look = put_bytes
            self._quiet_since_ns = self._looked_at_ns
        self._looked_at_ns = now_ns
        is_due = self._beat_ns > 0 and now_ns - self._quiet_since_ns >= self._beat_ns
        if is_due:
            self._put_at_last_look += 1
            self._quiet_since_ns = now_ns
        return is_due

    def next_look_ns(self, now_ns: int) -> int | None:
        """When to check again; None if nothing has a time limit."""
        due = []
        if self._connect_by_ns is not None:
            due.append(self._connect_by_ns)
        if self._silence_ns:
            due.append(self.last_received_ns + self._silence_ns)
        if self._beat_ns:
            due.append(min(now_ns + self._beat_ns // LOOKS_PER_BEAT, self._quiet_since_ns + self._beat_ns))
        return min(due, default=None)
