"""What all sessions of a broker share, with the time limits of each.

Law: made by the composition root and given to each session. Timers keep times and compare them: the pacemaker calls
`on_timer`, and the session acts on what is due.
"""

from __future__ import annotations

import heapq
from dataclasses import InitVar, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import read_destination
from stompbroker.signals import Signal
from stompbroker.stomp import HeadAllowance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stompbroker.access import Audit, Authenticator, Usage
    from stompbroker.changes import Journal, Producers, Queues
    from stompbroker.clock import Clock
    from stompbroker.delivery import Pattern, Registry
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import MessageIds
    from stompbroker.sessions.outbox import FlushQueue
    from stompbroker.stomp import HeartBeats, Limits

#: Cancelled entries are cleared out when the heap has this many more than twice the live ones.
SLACK: Final = 64
#: A heart-beat is sent after this part of the agreed interval without a frame: early enough for a slow network, late
#: enough for clients that read until nothing has come for a while.
BEAT_AT: Final = 0.75
#: How long answers to probes count instead of heart-beats. The timers of a browser's tab sleep in the background, but a
#: client without a byte of STOMP for ten minutes is dead.
MAX_ASLEEP_NS: Final = 600 * NANOSECONDS
#: Checks in that time whether something was sent. No heart-beats are sent between frames less than one check apart.
LOOKS_PER_BEAT: Final = 2
_NS_PER_MS: Final = 1_000_000
#: NACKs a second, over all connections, while other clients wait for the store. One costs about 31 µs in all, so this
#: is an eighth of the time.
REFUSALS_PER_S: Final = 4_000
#: The longest pause, however many are refused: the client must not miss its heart-beats.
MAX_REST_NS: Final = NANOSECONDS // 2


class Timed(Protocol):
    """What the timers need of a session."""

    def on_timer(self, now_ns: int) -> int | None:
        """Do what is due; returns when to be called again."""


@final
@dataclass(slots=True, eq=False)
class SessionTimers:
    """One heap for all sessions.

    Invariants:
        _places[session] is the one entry in the heap that is not cancelled
        len(_heap) <= 2 * len(_places) + SLACK + 1
    """

    #: When; a running number, so that sessions are not compared; and the session, or None once it is cancelled.
    _heap: list[list[Any]] = field(default_factory=list)
    _places: dict[Timed, list[Any]] = field(default_factory=dict)
    _sequence: Iterator[int] = field(default_factory=count)
    #: Woken when the earliest time has become earlier.
    changed: Signal = field(default_factory=Signal)

    @property
    def next_at_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def schedule(self, session: Timed, at_ns: int) -> None:
        """Call this session's `on_timer` at that time, instead of the time asked for before."""
        self.forget(session)
        entry = [at_ns, next(self._sequence), session]
        self._places[session] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._places) + SLACK:
            self._heap = [each for each in self._heap if each[2] is not None]
            heapq.heapify(self._heap)
        if self._heap[0] is entry:
            self.changed.wake()

    def forget(self, session: Timed) -> None:
        place = self._places.pop(session, None)
        if place is not None:
            place[2] = None

    def take_due(self, now_ns: int, limit: int) -> list[Timed]:
        """The sessions whose time has come, at most `limit`."""
        due: list[Timed] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            session = heapq.heappop(self._heap)[2]
            if session is not None:
                del self._places[session]
                due.append(session)
        return due


@final
@dataclass(slots=True, eq=False)
class Liveness:
    """The time limits of one connection."""

    last_received_ns: int
    connect_timeout_ns: InitVar[int]
    _connect_by_ns: int | None = field(init=False)
    #: How long the client may be silent; 0 for ever.
    _silence_ns: int = 0
    #: How long we may send nothing before a heart-beat is due; 0 for ever.
    _beat_ns: int = 0
    #: When that was last checked, and how many bytes had been put into the outbox by then.
    _looked_at_ns: int = field(init=False)
    _put_at_last_look: int = 0
    #: The last frame was put into the outbox at this time or later.
    _quiet_since_ns: int = field(init=False)
    #: When the client last answered a probe, and when it is asked next; None if that is impossible.
    last_life_ns: int = 0
    _probe_at_ns: int | None = None

    def __post_init__(self, connect_timeout_ns: int) -> None:
        self._connect_by_ns = self.last_received_ns + connect_timeout_ns
        self._looked_at_ns = self._quiet_since_ns = self.last_received_ns

    def connected(self, heart_beats: HeartBeats, margin: float) -> None:
        self._connect_by_ns = None
        self._silence_ns = int(heart_beats.from_client_ms * margin * _NS_PER_MS)
        self._beat_ns = int(heart_beats.to_client_ms * BEAT_AT * _NS_PER_MS)
        self._looked_at_ns = self.last_received_ns
        self._probe_at_ns = self.last_received_ns + self._silence_ns // 2 if self._silence_ns else None

    def is_probe_due(self, now_ns: int) -> bool:
        """Whether to ask the client for a sign of life: it has used up half of the silence it may keep."""
        if self._probe_at_ns is None:
            return False
        self._probe_at_ns = max(self._probe_at_ns, self._last_sign_ns + self._silence_ns // 2)
        return now_ns >= self._probe_at_ns

    def note_probe(self, now_ns: int, *, is_possible: bool) -> None:
        self._probe_at_ns = now_ns + self._silence_ns // 2 if is_possible else None

    @property
    def _last_sign_ns(self) -> int:
        """A probe that was answered counts as if something was received, but not for ever."""
        return max(self.last_received_ns, min(self.last_life_ns, self.last_received_ns + MAX_ASLEEP_NS))

    def connect_by(self, at_ns: int | None) -> None:
        """Until when CONNECTED must be sent; None while the client waits for others to be checked."""
        self._connect_by_ns = at_ns

    def check(self, now_ns: int, *, is_reading: bool) -> None:
        """Raise PeerViolation if the client is overdue. A client that is not read from may be silent."""
        if self._connect_by_ns is not None and now_ns >= self._connect_by_ns:
            raise PeerViolation("not connected in time", "CONNECT or STOMP must be the first frame, and come at once")
        if not is_reading:
            self.last_received_ns = now_ns
        elif self._silence_ns and now_ns - self._last_sign_ns >= self._silence_ns:
            raise PeerViolation(
                "heart-beat missing",
                f"nothing was received for {self._silence_ns / 1e9:g} s, more than was agreed; "
                "send line feeds, or agree on a longer interval",
            )

    def owes_heart_beat(self, now_ns: int, put_bytes: int) -> bool:
        """Whether a heart-beat has to be put into the outbox now. `put_bytes`: how much was ever put there. When
        something was put is known only as between two checks; the earlier one counts."""
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
        due = [] if self._connect_by_ns is None else [self._connect_by_ns]
        if self._silence_ns:
            due.append(self._last_sign_ns + self._silence_ns)
        if self._probe_at_ns is not None:
            due.append(self._probe_at_ns)
        if self._beat_ns:
            due.append(min(now_ns + self._beat_ns // LOOKS_PER_BEAT, self._quiet_since_ns + self._beat_ns))
        return min(due, default=None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the operator decided about single connections."""

    limits: Limits
    #: Sent after the NUL of every frame.
    after_frame: bytes
    heart_beat_send_ms: int
    heart_beat_want_ms: int
    #: A client is disconnected after this many agreed intervals of silence.
    heart_beat_margin: float
    connect_timeout_ns: int
    max_subscriptions: int
    #: Of all clients together.
    max_durable_subscriptions: int
    default_prefetch: int
    group_prefetch: int
    #: Whether a destination without a prefix is a queue.
    is_bare_queue: bool
    max_prefetch: int
    max_waiting: int
    transaction_timeout_ns: int
    #: Bytes of frames kept for a connection that is held back, before it is no longer read.
    parking_bytes: int
    #: How long a held-back connection with deliveries in flight may keep its parking full.
    block_timeout_ns: int
    #: Whether anybody from anywhere is served without login.
    anonymous: bool = False


@final
@dataclass(slots=True, eq=False)
class RefusalPace:
    """Limits refusals to REFUSALS_PER_S, over all clients, while another client waits for the store.

    A refused message comes again, so a client that refuses everything keeps the broker busy for nothing.
    """

    #: When the time for all refusals so far is over.
    _free_at_ns: int = 0

    def rest_ns(self, refusals: int, now_ns: int) -> int:
        """How long not to read from the client that has just refused so many."""
        self._free_at_ns = max(self._free_at_ns, now_ns) + refusals * NANOSECONDS // REFUSALS_PER_S
        return min(self._free_at_ns - now_ns, MAX_REST_NS)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    registry: Registry
    journal: Journal
    queues: Queues
    producers: Producers
    budget: MemoryBudget
    flush_queue: FlushQueue
    clock: Clock
    timers: SessionTimers
    message_ids: MessageIds
    settings: SessionSettings
    refusal_pace: RefusalPace
    throttle: LogThrottle
    #: The `server` header of CONNECTED; empty for none.
    server: str
    authenticator: Authenticator
    usage: Usage
    audit: Audit
    head_allowance: HeadAllowance = field(default_factory=HeadAllowance)

    def read_destination(self, text: str, parse: Callable[[str], Pattern]) -> Pattern:
        """Raises PeerViolation."""
        return read_destination(text, parse, is_bare_queue=self.settings.is_bare_queue)
