"""One connected client, from its first byte to its last.

Law: synchronous, and knows no socket. The worker feeds it chunks and sends its outbox, the pacemaker calls `on_timer`;
between two calls everything is consistent. `commands` knows what frames do. This module knows in which order they are
applied, when a client is held back or disconnected, and what happens then.

With login, CONNECT makes `credentials`; the worker has them checked and calls `admit` or `refuse`. Until then no other
frame is looked at.

A client that publishes to a topic whose window is full, or to a stored one while the journal's gate is closed, is *held
back*: its SENDs, and whatever follows them, are parked. Its ACKs, NACKs and heart-beats still count, because they may
give the topic room again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, final

from stompbroker.access import ANYBODY, Credentials, Right
from stompbroker.changes import Lane, Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Leaving
from stompbroker.errors import Denied, PeerViolation
from stompbroker.sessions.client import Client
from stompbroker.sessions.commands import Commands
from stompbroker.sessions.gathering import Intake, Parking
from stompbroker.sessions.outbox import Outbox
from stompbroker.sessions.session_context import Liveness
from stompbroker.signals import Signal
from stompbroker.stomp import HEART_BEAT, MAX_FRAMES_PER_CALL, Connection, forbid_body, render_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.access import Grant, LoginRefused
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import Frame

#: While memory is tight, a partial frame above this size has to go on coming.
SMALL_PARTIAL_BYTES: Final = 64 * 1024


@final
class Ending(Enum):
    """Why nothing more is taken from a client."""

    DISCONNECTED = "the client said DISCONNECT"
    FAILED = "the client was sent an ERROR"
    LOST = "the connection is gone"


@final
@dataclass(slots=True, eq=False, repr=False)
class Session:
    """
    Invariants:
        nothing is applied and nothing delivered once `ending` is set
        while anything is parked, every new frame is parked behind it, except ACK and NACK outside transactions
        partial frames, parked frames and transactions are charged to the memory budget
    """

    _context: SessionContext
    connection_id: ConnectionId
    #: The client's address, for people to read.
    peer: str
    #: The endpoint it came in at, for people to read; who alone may log in there, None for everybody.
    endpoint: str = ""
    allowed_users: frozenset[str] | None = None
    #: The subject of its certificate.
    certificate: str | None = None
    #: What a bridge of this broker may do, which does not log in.
    grant: Grant | None = None
    #: What is being checked, between CONNECT and `admit`.
    credentials: Credentials | None = None
    connected_at_ns: int = field(init=False)
    bytes_in: int = 0
    #: Woken when there may be room again for more of what this client sends.
    resumed: Signal = field(default_factory=Signal)
    outbox: Outbox = field(init=False)
    ending: Ending | None = None
    #: Cancels the worker's reading when `ending` is set; installed by the worker.
    interrupt: Callable[[], None] = lambda: None
    #: Asks the client for a sign of life, which `note_life` notes; False if that cannot be done. Set by the worker.
    probe: Callable[[], bool] = lambda: False
    protocol: Connection = field(init=False)
    client: Client = field(init=False)
    commands: Commands = field(init=False)
    _liveness: Liveness = field(init=False)
    _lane: Lane = field(init=False)
    _parking: Parking = field(init=False)
    _intake: Intake = field(init=False)
    #: Whether its frames are being applied, and the ERROR that has to wait until then.
    _is_applying: bool = False
    _deferred_failure: PeerViolation | None = None
    #: Whether it will get an ERROR once its units before it are completed.
    _is_failing: bool = False
    #: Set by the worker while it reads nothing: there is no memory, or the client has sent too much.
    is_paused: bool = False
    #: Whether a transaction was open, or a large frame incomplete, after the last chunk.
    _had_timed: bool = False
    #: Whether it counts as a connection of its user.
    _is_logged_in: bool = False
    #: Partial frames and transactions, as last charged.
    _charged_bytes: int = 0

    def __post_init__(self) -> None:
        context, settings = self._context, self._context.settings
        now_ns = self.connected_at_ns = context.clock.now_ns()
        self.outbox = Outbox(context.budget, self.resumed, context.flush_queue)
        self.protocol = Connection(
            settings.limits, settings.heart_beat_send_ms, settings.heart_beat_want_ms, context.head_allowance
        )
        self._liveness = Liveness(now_ns, settings.connect_timeout_ns)
        self._lane = Lane(self.resumed)
        self.client = Client(self.connection_id, self.peer, partial(self._end, Ending.DISCONNECTED), self.fail)
        self.commands = Commands(context, self.client, self.outbox, self._lane)
        self._parking = Parking(context.budget, settings.parking_bytes)
        self._intake = Intake(self._parking, self._lane, self.outbox, settings.block_timeout_ns)
        context.timers.schedule(self, now_ns + settings.connect_timeout_ns)

    # Receiving -------------------------------------------------------------------------------------------------------

    @property
    def is_held_back(self) -> bool:
        return len(self._parking) > 0

    @property
    def wants_more(self) -> bool:
        """Whether the worker should read on."""
        return self.ending is None and self._intake.has_room

    @property
    def is_unfinished(self) -> bool:
        """Whether frames of this client are parked or in the journal."""
        return self.is_held_back or self._lane.units > 0

    @property
    def is_owed_receipt(self) -> bool:
        """Whether one is on its way: as soon as something of this client is durable."""
        return self._lane.receipts > 0

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return self.protocol.pending_bytes

    @property
    def awaited_bytes(self) -> int:
        """How many more bytes complete it; 0 if nobody knows."""
        return self.protocol.awaited_bytes

    def receive(self, chunk: bytes) -> bool:
        """Apply the frames of a chunk, at most MAX_FRAMES_PER_CALL. True if there are more: then call `receive(b"")`
        after a checkpoint."""
        self.bytes_in += len(chunk)
        now_ns = self._liveness.last_received_ns = self._context.clock.now_ns()
        is_greeted = self.protocol.greeting is not None
        try:
            frames = self.protocol.receive(chunk)
            if not is_greeted:
                self._greet(frames)
            elif self.is_held_back:
                self._overtake_or_park(frames, now_ns)
            else:
                applied = self._apply(frames, now_ns)
                if applied < len(frames):
                    self._overtake_or_park(frames[applied:], now_ns)
        except PeerViolation as violation:
            self.credentials = None
            self.protocol.fail()
            if self.is_held_back:
                self._parking.put(violation)
            else:
                self.fail(violation)
        self._after_commands()
        return self.protocol.has_more and self.ending is None

    def resume(self) -> bool:
        """Apply parked frames, at most MAX_FRAMES_PER_CALL. True if more can be applied now."""
        if self.ending is not None:
            return False
        try:
            frames = self._parking.take(MAX_FRAMES_PER_CALL)
            applied = self._apply(frames, self._context.clock.now_ns())
        except PeerViolation as violation:
            self.fail(violation)
            return False
        self._parking.put_back(frames[applied:])
        self._after_commands()
        self.resumed.wake()
        return self.is_held_back and applied > 0

    def take_rest_s(self) -> float:
        """How long not to read from this client because of its NACKs; 0 if no other client waits for the store."""
        refusals, self.commands.refusals = self.commands.refusals, 0
        if not refusals or self._context.journal.pending_units <= self._lane.units:
            return 0.0
        return self._context.refusal_pace.rest_ns(refusals, self._context.clock.now_ns()) / NANOSECONDS

    def debt_s(self) -> float:
        """How long not to read from this client because its user has sent more messages than it may."""
        published, self.commands.published = self.commands.published, 0
        if not self._is_logged_in or not self.client.grant.limits.messages_per_s:
            return 0.0
        return self._context.usage.pause_s(self.client.grant.user, published, self._context.clock.now_ns())

    async def wait_released(self) -> None:
        """Until the topic or gate that holds this session back is unblocked, or the session has ended."""
        while self.ending is None and (holder := self.commands.held_by) is not None and holder.is_blocked:
            if holder.is_overdue:
                return  # to be refused
            await holder.unblocked.wait()

    async def wait_wanting_more(self) -> None:
        """Until `wants_more` is true, or the session has ended."""
        while self.ending is None and not self.wants_more:
            await self.resumed.wait_either(self._context.budget.eased)
            if self._intake.note(self._context.clock):
                self._look_at_times()

    def _greet(self, frames: Sequence[Frame]) -> None:
        """CONNECT is the first frame, and the protocol returns it alone, since what follows depends on the version."""
        greeting = self.protocol.greeting
        if greeting is None:
            return
        (connect,) = frames
        forbid_body(connect, greeting.version)
        self.client.introduce(greeting.version, greeting.headers.get("client-id"))
        if self.grant is not None or not self._context.authenticator.is_required:
            self.admit(self.grant or ANYBODY)
            return
        scheme, _, token = greeting.headers.get("authorization", "").partition(" ")
        self.credentials = Credentials(
            login=greeting.headers.get("login"),
            passcode=greeting.headers.get("passcode"),
            token=token.strip() if scheme.lower() == "bearer" else None,
            certificate=self.certificate,
            address=self.host,
        )
        self.protocol.check_early()
        # A place in the line of those who are checked is not the client's fault.
        self._liveness.connect_by(None)

    def await_check(self) -> None:
        """Its credentials are being checked: that must not take longer than a connection has for its CONNECT."""
        if self.credentials is not None:
            self._liveness.connect_by(self._context.clock.now_ns() + self._context.settings.connect_timeout_ns)
            self._look_at_times()

    def refuse(self, refused: LoginRefused) -> None:
        """Its credentials are wrong."""
        assert self.credentials is not None
        self._context.audit.refused(self.credentials.login or "", self.host, self.endpoint, refused.reason)
        self.fail(refused)

    def admit(self, grant: Grant) -> None:
        """Its CONNECT was checked: from now on its frames count, as far as the grant goes."""
        greeting = self.protocol.greeting
        if self.ending is not None or self._is_failing or greeting is None:
            return
        self.credentials = None
        try:
            self._check_may_enter(grant)
            self._context.usage.log_in(grant)
        except PeerViolation as violation:
            self.fail(violation)
            return
        self._is_logged_in = True
        if grant is not ANYBODY and self.grant is None:
            self._context.audit.logged_in(grant.user, self.host, self.endpoint)
        self.client.admit(grant, self._context.message_ids)
        self.protocol.admit()
        self._liveness.connected(greeting.heart_beats, self._context.settings.heart_beat_margin)
        self._put_frame(self.protocol.render_connected(str(self.connection_id), self._context.server))
        self._look_at_times()

    def _check_may_enter(self, grant: Grant) -> None:
        """Raise PeerViolation if this user has to come in elsewhere."""
        if self.allowed_users is not None and grant.user not in self.allowed_users:
            raise Denied(
                "not allowed", f"the user {grant.user!r} must not connect to {self.endpoint}; use another endpoint"
            )

    def renew(self, grant: Grant | None) -> None:
        """The rules have changed, and this is what they give now; None if the login does not hold any more. Open
        subscriptions are checked again, SENDs when they come."""
        if self.ending is not None or not self._is_logged_in:
            return
        if grant is None:
            self.fail(PeerViolation("login revoked", "an operator has changed who may log in; log in again"))
            return
        self.client.grant = grant
        self._context.usage.renew(grant)
        try:
            self._check_may_enter(grant)
            for consumer in self.commands.consumers:
                subscription = consumer.subscription
                self.client.check_allowed(Right.READ, subscription.pattern, subscription.destination)
        except PeerViolation as violation:
            self.fail(violation)

    def _apply(self, frames: Sequence[Frame], now_ns: int) -> int:
        self._is_applying = True
        try:
            return self.commands.apply(frames, now_ns)
        finally:
            self._is_applying = False

    def _overtake_or_park(self, frames: Sequence[Frame], now_ns: int) -> None:
        """Apply answers at once; park everything else behind what is parked."""
        answers = []
        for frame in frames:
            if frame.command in ("ACK", "NACK") and "transaction" not in frame.headers:
                answers.append(frame)
            else:
                self._parking.put(frame)
        self._apply(answers, now_ns)

    def _after_commands(self) -> None:
        """Charge the memory this client uses, start its timers, and send an ERROR that had to wait."""
        partial_bytes = self.partial_bytes
        kept_bytes = partial_bytes + self.commands.transactions.size_bytes
        self._context.budget.adjust(kept_bytes - self._charged_bytes)
        self._charged_bytes = kept_bytes
        has_timed = self.commands.commit_by_ns is not None or partial_bytes > SMALL_PARTIAL_BYTES
        if self._intake.note(self._context.clock) or (has_timed and not self._had_timed):
            self._look_at_times()
        self._had_timed = has_timed
        if self._deferred_failure is not None:
            self.fail(self._deferred_failure)

    # Time ------------------------------------------------------------------------------------------------------------

    def _look_at_times(self) -> None:
        """Something with a time limit has begun: have `on_timer` called soon."""
        if self.ending is None:
            self._context.timers.schedule(self, self._context.clock.now_ns())

    def on_timer(self, now_ns: int) -> int | None:
        """Send a heart-beat or disconnect the client if that is due. Returns when to be called again."""
        if self.ending is not None:
            return None
        if self._liveness.is_probe_due(now_ns):
            self._liveness.note_probe(now_ns, is_possible=self.probe())
        try:
            self._liveness.check(now_ns, is_reading=self.wants_more and not self.is_paused)
        except PeerViolation as violation:
            # Lost, not ended: a silent client may hang because of a message it was sent.
            self.fail(violation, Leaving.LOST)
            return None
        try:
            self._check_expiry(now_ns)
            self.commands.check_transactions(now_ns)
            self._check_partial_frame(now_ns)
            self._intake.check(now_ns, self.commands.held_by, self.commands.consumers)
        except PeerViolation as violation:
            self.fail(violation)
            return None
        if self._liveness.owes_heart_beat(now_ns, self.outbox.put_bytes):
            self.outbox.put(HEART_BEAT)
        due = [self._liveness.next_look_ns(now_ns), self.commands.commit_by_ns, self._intake.check_at_ns]
        due.append(self.client.grant.expires_at_ns)
        if self.partial_bytes > SMALL_PARTIAL_BYTES:
            due.append(now_ns + self._context.settings.block_timeout_ns)
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def read_again(self) -> None:
        """The worker reads on: until now, the client's silence was ours."""
        self.is_paused = False
        self._liveness.last_received_ns = self._context.clock.now_ns()

    def note_life(self) -> None:
        """The client has answered a probe."""
        self._liveness.last_life_ns = self._context.clock.now_ns()

    def _check_expiry(self, now_ns: int) -> None:
        expires_at_ns = self.client.grant.expires_at_ns
        if expires_at_ns is not None and now_ns >= expires_at_ns:
            raise PeerViolation("token expired", "connect again with a new one")

    def _check_partial_frame(self, now_ns: int) -> None:
        """While memory is tight, a large partial frame must not stall."""
        silence_ns = now_ns - self._liveness.last_received_ns
        is_overdue = silence_ns >= self._context.settings.block_timeout_ns and not self.is_paused
        if self.partial_bytes > SMALL_PARTIAL_BYTES and is_overdue and self._context.budget.is_tight:
            raise PeerViolation(
                "incomplete frame",
                f"{self.partial_bytes} bytes of a frame keep memory that others need, and nothing more of it came for "
                f"{silence_ns / NANOSECONDS:g} s",
            )

    # Ending ----------------------------------------------------------------------------------------------------------

    def fail(self, violation: PeerViolation, leaving: Leaving = Leaving.ENDED) -> None:
        """Send an ERROR and disconnect; nothing more is delivered to the client or taken from it. If its own frames
        cause this, by filling a topic it is too slow for, they are applied first."""
        if self.ending is not None or self._is_failing:
            return
        if self._is_applying:
            self._deferred_failure = self._deferred_failure or violation
            return
        self.protocol.fail()
        self.commands.abandon(leaving)
        if self._lane.units and not self._context.journal.gate.is_blocked:
            # Its outstanding receipts come first.
            self._is_failing = True
            # Its topic may take messages again before that.
            self._parking.clear()
            self._context.journal.submit(Unit(then=lambda: self._end_failed(violation), lane=self._lane))
        else:
            self._end_failed(violation)

    def _end_failed(self, violation: PeerViolation) -> None:
        if self.ending is not None:
            return
        self._put_frame(render_error(violation, self.protocol.version))
        self._context.throttle.log(
            "info",
            "client failed",
            (self.host, violation.summary),
            connection=self.connection_id,
            peer=self.peer,
            error=str(violation),
        )
        if isinstance(violation, Denied):
            self._context.audit.denied(self.client.grant.user, self.host, self.endpoint, violation.detail)
        self._end(Ending.FAILED)

    def _put_frame(self, frame: bytes) -> None:
        self.outbox.put(frame + self._context.settings.after_frame)

    def lose(self) -> None:
        """The connection is gone, or about to be: release everything kept for it."""
        self.commands.abandon(Leaving.LOST)
        self._end(Ending.LOST)
        self.outbox.close()
        self.protocol.close()
        self._parking.clear()
        self._context.budget.adjust(-self._charged_bytes)
        self._charged_bytes = 0
        if self._is_logged_in:
            self._is_logged_in = False
            self._context.usage.log_out(self.client.grant.user)
        self.client.release()

    def _end(self, ending: Ending) -> None:
        self.ending = self.ending or ending
        self._context.timers.forget(self)
        self.interrupt()
        self.resumed.wake()
        if self.commands.held_by is not None:
            self.commands.held_by.unblocked.wake()

    @property
    def host(self) -> str:
        """The client's address without its port, and without the brackets of IPv6; of all Unix sockets the same."""
        return self.peer.rpartition(":")[0].strip("[]")

    def check_invariants(self) -> None:
        self.commands.check_invariants()
        # In between, a DISCONNECT or an ERROR waits for the units before it.
        assert self.commands.is_over or (self.ending is None and not self._is_failing)
