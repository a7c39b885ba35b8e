"""Carries messages over one crossing of a bridge: a client of the broker they come from, and of the one they go to.

Law: waits and passes on; what is said to whom is decided in `bridges`. Both ends are clients, this broker's end too, so
that one path serves both directions and keeps to the rules and bounds of every client. Any failure ends both
connections, is shown with its reason, and after a wait both are made anew, for ever. Cancelling it loses nothing.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from stompbroker.access import grant_of_bridge
from stompbroker.bridges import CrossingState, Direction, Verdict, in_short, onward
from stompbroker.client import BackOff, ClientError, Refused, TlsOptions, connect
from stompbroker.errors import OperatorError
from stompbroker.transport import TcpTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from stompbroker.access import Grant
    from stompbroker.bridges import BridgePlan, Crossing, Flow, Passing
    from stompbroker.client import Client, Message, Subscription
    from stompbroker.clock import Clock
    from stompbroker.transport import Transport

#: The wait before another attempt, in seconds; it doubles up to the second.
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
#: A crossing that lived this long was a good one: the next failure is the first.
STABLE_S: Final = 10.0
#: Messages that are passed on between two checkpoints: about 2 ms.
SLICE_MESSAGES: Final = 100
#: How often it is looked whether receipts come in time.
LOOK_S: Final = 1.0
#: Time to say goodbye to the source, so that what was on its way does not count as failed there.
GOODBYE_S: Final = 2.0
#: Stands for this broker in a client that gets its stream from `open_local`.
_HERE: Final = "unix:///this-broker"

log = structlog.get_logger()


class _Over(OperatorError):
    """The crossing cannot go on as it is; the text says why."""


@final
@dataclass(frozen=True, slots=True)
class LocalEnd:
    """How bridges reach this broker: over sockets in its own process, without login."""

    #: Where its side of each connection is served, and by what.
    connections: trio.Nursery
    serve: Callable[[Transport, Grant], Awaitable[None]]

    async def open(self, plan: BridgePlan) -> trio.abc.Stream:
        ours, theirs = trio.socket.socketpair()
        transport = TcpTransport(trio.SocketStream(theirs), f"bridge:{plan.name}")
        self.connections.start_soon(self.serve, transport, grant_of_bridge(plan.name))
        return trio.SocketStream(ours)


async def run(crossing: Crossing, local: LocalEnd, clock: Clock) -> None:
    """Until cancelled."""
    back_off = BackOff(first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
    while True:
        began_at_s, refused, reason = trio.current_time(), crossing.refused, "It has ended."
        try:
            await _cross(crossing, local, clock)
        except (ClientError, OperatorError, OSError) as error:
            reason = in_short(str(error))
        was_connected = crossing.state is CrossingState.CONNECTED
        if was_connected or reason != crossing.problem:
            log.warning(
                "bridge is not connected; trying again",
                bridge=crossing.plan.name,
                direction=crossing.direction.value,
                reason=reason,
            )
        crossing.failed(reason, clock.now_ns())
        # That a message was refused says nothing against the connection, and that message waits now.
        if was_connected and (trio.current_time() - began_at_s >= STABLE_S or crossing.refused > refused):
            back_off.reset()
        await trio.sleep(back_off.next_wait_s())


async def _cross(crossing: Crossing, local: LocalEnd, clock: Clock) -> None:
    """Connect to both, and pass on until something fails. Raises ClientError, OperatorError, OSError."""
    plan, is_inward = crossing.plan, crossing.direction is Direction.RECEIVE
    async with AsyncExitStack() as stack:
        there = await _remote(plan, is_source=is_inward)
        here = connect(
            _HERE, client_id=plan.client_id, give_up_after=0, open_with=lambda *_: local.open(plan), heart_beat=0
        )
        # The target first: as long as that cannot be reached, nothing is taken from the source.
        target = await stack.enter_async_context(here if is_inward else there)
        source = await stack.enter_async_context(there if is_inward else here)
        try:
            carried: list[tuple[str, Subscription, Flow]] = []
            for pattern in plan.patterns(crossing.direction):
                subscribing = _subscribe(source, plan, pattern, is_ours=crossing.is_from_ours)
                carried.append((pattern, await stack.enter_async_context(subscribing), crossing.flow(pattern)))
            crossing.connected(clock.now_ns())
            log.info("bridge is connected", bridge=plan.name, direction=crossing.direction.value)
            await _Carrying(crossing, target, clock).run(carried)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(GOODBYE_S), suppress(ClientError):
                await source.aclose()


async def _remote(plan: BridgePlan, *, is_source: bool) -> Client:
    """Raises ClientError, OperatorError."""
    has_tls = plan.tls_ca is not None or plan.tls_certificate is not None
    return connect(
        *plan.urls,
        login=plan.login,
        passcode=await _secret(plan.passcode_file),
        token=await _secret(plan.token_file),
        # ActiveMQ lets in one client of a name at a time. Ours are to know who publishes and subscribes as the same.
        client_id=plan.client_id if is_source or plan.is_ours else None,
        tls=TlsOptions(ca=plan.tls_ca, certificate=plan.tls_certificate, key=plan.tls_key) if has_tls else None,
        virtual_host=plan.virtual_host,
        give_up_after=0,
    )


async def _secret(file: Path | None) -> str | None:
    """Read at each attempt, so that it can be changed. Raises OperatorError."""
    if file is None:
        return None
    try:
        return (await trio.Path(file).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _subscribe(
    source: Client, plan: BridgePlan, pattern: str, *, is_ours: bool
) -> AbstractAsyncContextManager[Subscription]:
    is_queue = pattern.startswith("/queue/")
    headers: dict[str, str] = {}
    if is_ours:
        headers["bridge"] = "true"
        if not is_queue:
            # What the target refuses waits here and is tried again; what this bridge has brought is known there.
            headers |= {"max-attempts": "0", "no-local": "true"}
    name = plan.durable_name(pattern, is_ours=is_ours)
    return source.subscribe(
        pattern,
        ack="client" if is_ours else "client-individual",
        durable=None if is_queue else name,
        prefetch=plan.prefetch,
        headers=headers,
    )


@final
class _Carrying:
    """Both ends are connected: the tasks that pass messages on, and settle them."""

    def __init__(self, crossing: Crossing, target: Client, clock: Clock) -> None:
        self._crossing = crossing
        self._target = target
        self._clock = clock
        self._failure: ClientError | OperatorError | None = None
        self._scope = trio.CancelScope()

    async def run(self, carried: list[tuple[str, Subscription, Flow]]) -> None:
        """Until something fails, which is raised."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for pattern, subscription, flow in carried:
                    nursery.start_soon(self._until_failure, self._pass_on, pattern, subscription, flow)
                    nursery.start_soon(self._until_failure, self._settle, flow)
                nursery.start_soon(self._until_failure, self._watch)
                nursery.start_soon(self._until_failure, self._target.wait_ended)
        # What is decided by now need not come again.
        for _, _, flow in carried:
            self._say(flow)
        if self._failure is not None:
            raise self._failure

    async def _until_failure(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await task(*args)
        except (ClientError, OperatorError) as error:
            # The first one is the cause of the others, but an ERROR says more than a lost connection.
            if self._failure is None or isinstance(error, Refused):
                self._failure = error
            self._scope.cancel()

    async def _pass_on(self, pattern: str, subscription: Subscription, flow: Flow) -> None:
        while True:
            for message in await subscription.take(SLICE_MESSAGES):
                await self._send(pattern, message, flow)
            await trio.lowlevel.checkpoint()

    async def _send(self, pattern: str, message: Message, flow: Flow) -> None:
        """Waits only while too much is unconfirmed."""
        try:
            passage = onward(
                message.headers,
                pattern=pattern,
                from_ours=self._crossing.is_from_ours,
                to_ours=self._crossing.is_to_ours,
                now_ms=self._clock.now_ns() // 1_000_000,
            )
        except ValueError as error:
            raise _Over(f"What comes from {pattern} cannot be passed on: {error}") from error
        passing = flow.add(message, trio.current_time(), passage.published_ms)
        await self._target.publish_soon(
            passage.destination, message.body, headers=passage.headers, then=partial(self._note, flow, passing)
        )

    def _note(self, flow: Flow, passing: Passing, said: Mapping[str, str] | ClientError) -> None:
        """What has become of one message."""
        if not isinstance(said, ClientError):
            flow.confirmed(passing, said)
        elif isinstance(said, Refused) and self._crossing.is_from_ours:
            flow.refused(passing, str(said))
        # Otherwise the connection was lost, or another broker would lose what is refused: it comes again.

    async def _settle(self, flow: Flow) -> None:
        while True:
            while not flow.is_decided:
                await flow.decided.wait()
            self._say(flow)

    def _say(self, flow: Flow) -> None:
        for message, verdict, reason in flow.take_settled():
            if verdict is Verdict.ACK:
                message.ack()
            elif self._crossing.is_from_ours:
                message.nack(reason=reason)
            else:
                raise _Over(f"A message of {message.destination} was refused: {reason}")

    async def _watch(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            if (reason := self._crossing.overdue(trio.current_time())) is not None:
                raise _Over(reason)
