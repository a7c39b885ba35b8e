"""Accepts connections, has them established, and starts a worker for each; refuses too many with an ERROR frame.

Cancelling it stops accepting, and ends handshakes that are under way; it touches no connection that is served. A bug of
ours in a handshake is logged here, and ends that connection only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.access import TooManyWrong
from stompbroker.errors import PeerViolation
from stompbroker.stomp import Version, render_error
from stompbroker.transport import host_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stompbroker.access import Usage
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.transport import Listener, TcpTransport, Transport

#: How long telling a client that there is no room may take, in seconds.
REFUSAL_S: Final = 1.0
#: How many are told at the same time. The connections of all others are just closed.
MAX_REFUSALS: Final = 256
#: The same for those who guess passwords: most of a flood costs no more than being closed.
MAX_TOLD_GUESSERS: Final = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What all listeners of a broker share."""

    #: Where connections live.
    connections: trio.Nursery
    serve: Callable[[Transport], Awaitable[None]]
    max_connections: int
    #: Whether somebody at this address guesses passwords.
    is_unwelcome: Callable[[str], bool]
    #: Counts the connections of addresses; refuses too many of one.
    usage: Usage
    #: For PROXY header and handshakes, in seconds.
    establish_s: float
    #: Sent behind an ERROR.
    after_frame: bytes
    throttle: LogThrottle


async def run(listener: Listener, reception: Reception) -> None:
    """Accept until cancelled."""
    async with trio.open_nursery() as refusals:
        door = _Door(listener, reception, refusals)
        try:
            while True:
                await door.let_in(await listener.accept(reception.throttle))
        finally:
            door.close()


@final
@dataclass(slots=True, eq=False)
class _Door:
    """Invariant: _open is the number of connections that came in here and have not ended."""

    _listener: Listener
    _reception: Reception
    _refusals: trio.Nursery
    _open: int = 0
    _establishing: set[trio.CancelScope] = field(default_factory=set)
    _is_closed: bool = False

    @property
    def _is_behind_proxy(self) -> bool:
        """Then who connects is known only from what the proxy says."""
        return bool(self._listener.endpoint.restrictions.proxies)

    async def let_in(self, accepted: TcpTransport) -> None:
        reception = self._reception
        most_here = self._listener.endpoint.restrictions.max_connections or reception.max_connections
        if not self._is_behind_proxy and reception.is_unwelcome(_host(accepted)):
            if self._listener.endpoint.needs_handshake or len(self._refusals.child_tasks) >= MAX_TOLD_GUESSERS:
                await accepted.close()
            else:
                await self._refuse(accepted, TooManyWrong())
        elif len(reception.connections.child_tasks) >= reception.max_connections or self._open >= most_here:
            most = min(reception.max_connections, most_here)
            reason = f"{most} are served at a time here; try again later"
            await self._refuse(accepted, PeerViolation("too many connections", reason))
        else:
            self._open += 1
            reception.connections.start_soon(self._look_after, accepted)

    async def _look_after(self, accepted: TcpTransport) -> None:
        transport: Transport | None = None
        counted: str | None = None
        try:
            if not self._is_behind_proxy:
                self._reception.usage.connect(_host(accepted))
                counted = _host(accepted)
            transport = await self._establish(accepted)
            if transport is None:
                return
            if self._is_behind_proxy:
                if self._reception.is_unwelcome(_host(transport)):
                    raise TooManyWrong
                self._reception.usage.connect(_host(transport))
                counted = _host(transport)
            await self._reception.serve(transport)
        except PeerViolation as refusal:
            await self._refuse(accepted, refusal, transport)
        finally:
            if counted is not None:
                self._reception.usage.disconnect(counted)
            self._open -= 1

    async def _establish(self, accepted: TcpTransport) -> Transport | None:
        """None if that fails; then it is closed."""
        problem = f"it took longer than {self._reception.establish_s:g} s"
        # One that was accepted just before the end gets no time.
        with trio.move_on_after(0 if self._is_closed else self._reception.establish_s) as scope:
            self._establishing.add(scope)
            try:
                return await self._listener.establish(accepted)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                problem = str(error)
            except Exception as error:
                self._note_bug(accepted, error)
                problem = "a bug"
            finally:
                self._establishing.discard(scope)
        self._reception.throttle.log(
            "info",
            "connection not established",
            (_host(accepted),),
            peer=accepted.peer,
            endpoint=str(self._listener.endpoint),
            reason=problem,
        )
        await accepted.close()
        return None

    async def _refuse(self, accepted: TcpTransport, reason: PeerViolation, transport: Transport | None = None) -> None:
        if not self._is_closed and len(self._refusals.child_tasks) < MAX_REFUSALS:
            self._refusals.start_soon(self._tell, accepted, reason, transport)
        else:
            await accepted.close()

    async def _tell(self, accepted: TcpTransport, reason: PeerViolation, transport: Transport | None) -> None:
        try:
            with trio.move_on_after(REFUSAL_S):
                transport = transport or await self._listener.establish(accepted)
                await transport.send_all(render_error(reason, Version.V1_0) + self._reception.after_frame)
                await transport.finish()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as error:
            self._note_bug(accepted, error)
        finally:
            await accepted.close()

    def _note_bug(self, accepted: TcpTransport, error: Exception) -> None:
        kind = (_host(accepted), type(error).__name__)
        self._reception.throttle.log("error", "connection failed", kind, exc_info=True, peer=accepted.peer)

    def close(self) -> None:
        self._is_closed = True
        for scope in self._establishing:
            scope.cancel()


def _host(transport: Transport) -> str:
    return host_in(transport.peer) or ""
