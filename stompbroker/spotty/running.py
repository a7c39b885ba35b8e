"""Runs a broker behind a relay and has the outages happen.

Law: one outage after the other, each written to the log when it begins and when it is over. The broker is our child in
a session of its own, so that a terminal's Ctrl-C reaches only us; in the end it is asked to stop, and gone with us.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final, final

import trio

from stompbroker.errors import OperatorError
from stompbroker.spotty.plan import Mode, Outage, down_entry
from stompbroker.spotty.relay import Address, Front, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.transport import Endpoint

#: The lines with which `stompbroker serve` says where it listens.
_LISTENING: Final = re.compile(rb"(?:is ready at|and at) [a-z+]+://([^\s/]+):([0-9]+)")
#: How long clients have for the broker's last words once that has ended, in seconds.
LAST_WORDS_S: Final = 2.0


@final
class Child:
    """The broker's process, one after the other.

    Invariants:
        `ended` is set exactly while no process runs
    """

    def __init__(self, arguments: Sequence[str], endpoints: int) -> None:
        """`arguments` of `stompbroker serve`, which make it listen at so many endpoints, on free ports."""
        self._arguments = arguments
        self._endpoints = endpoints
        self._process: subprocess.Popen[bytes] | None = None
        self.ended = trio.Event()
        self.ended.set()

    async def start(self, nursery: trio.Nursery) -> list[Address]:
        """Returns where it listens, when it does. Raises OperatorError."""
        stdout = self._begin()
        self.ended = trio.Event()
        said = trio.lowlevel.FdStream(os.dup(stdout.fileno()))
        stdout.close()
        try:
            addresses = await self._read_addresses(said)
        except BaseException:
            self.close()
            with trio.CancelScope(shield=True):
                await said.aclose()
            raise
        nursery.start_soon(self._watch, said)
        return addresses

    def _begin(self) -> IO[bytes]:
        """Returns its standard output.

        Not by a thread, as trio has it: on Linux the process is killed when the thread that started it ends.
        """
        command = [sys.executable, "-m", "stompbroker.spotty.child", str(os.getpid()), "serve", *self._arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        return self._process.stdout

    async def _read_addresses(self, said: trio.lowlevel.FdStream) -> list[Address]:
        lines = b""
        while len(found := _LISTENING.findall(lines[: lines.rfind(b"\n") + 1])) < self._endpoints:
            chunk = await said.receive_some()
            if not chunk:
                raise OperatorError(f"The broker did not start: it {self.end()}. Its own words are above.")
            lines += chunk
        return [Address(host.decode(), int(port)) for host, port in found]

    async def _watch(self, said: trio.lowlevel.FdStream) -> None:
        """Its output ends with it."""
        async with said:
            while await said.receive_some():
                pass
        self.end()

    def end(self) -> str:
        """Wait for the process, which is ending, and tell how it did."""
        assert self._process is not None
        code = self._process.wait()
        self.ended.set()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self.end()


@final
@dataclass(frozen=True, slots=True)
class Log:
    """Says what happens: an entry of JSON a line to a file, and a line for people."""

    file: IO[str] | None
    show: Callable[[str], None]
    began_at_s: float

    def note(self, entry: dict[str, Any], sentence: str) -> None:
        """Raises OperatorError."""
        since_start_s = round(trio.current_time() - self.began_at_s, 3)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.file is not None:
            try:
                self.file.write(json.dumps({"at": at, "since_start_s": since_start_s} | entry) + "\n")
                self.file.flush()
            except OSError as error:
                raise OperatorError(f"The log cannot be written: {error.strerror}.") from error
        self.show(f"{since_start_s:9.3f} s  {sentence}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Spotty:
    """What is to be run."""

    #: Where clients connect.
    endpoints: Sequence[Endpoint]
    #: Of `stompbroker serve`, which make the broker listen at as many, on free ports of this machine.
    arguments: Sequence[str]
    outages: Iterable[Outage]
    #: After so many seconds it ends; None is never.
    limit_s: float | None
    #: What the first line of the log says of the plan.
    origin: dict[str, Any]


async def run_spotty(
    spotty: Spotty,
    log_file: IO[str] | None,
    show: Callable[[str], None],
    on_ready: Callable[[Sequence[Endpoint]], None],
    stop: trio.Event,
) -> None:
    """Until all outages are over, time is up, or `stop` is set. Then the broker has been stopped. Raises OperatorError,
    alone or in a group."""
    fronts: list[Front] = []
    child = Child(spotty.arguments, len(spotty.endpoints))
    try:
        fronts += [Front(endpoint) for endpoint in spotty.endpoints]
        async with trio.open_nursery() as nursery:
            run = _Run(child, Relay(fronts, nursery), nursery, Log(log_file, show, trio.current_time()))
            with trio.CancelScope() as until_stopped:
                nursery.start_soon(_cancel_when, stop, until_stopped)
                await run.begin()
                on_ready([front.endpoint for front in fronts])
                run.log.note({"event": "begin"} | spotty.origin, "up")
                with trio.move_on_after(float("inf") if spotty.limit_s is None else spotty.limit_s):
                    for outage in spotty.outages:
                        await run.have(outage)
            await run.end()
            nursery.cancel_scope.cancel()
    finally:
        child.close()
        for front in fronts:
            front.close()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@final
@dataclass(slots=True)
class _Run:
    child: Child
    relay: Relay
    nursery: trio.Nursery
    log: Log
    brokers: Sequence[Address] = ()

    async def begin(self) -> None:
        self.brokers = await self.child.start(self.nursery)
        self.relay.listen(self.brokers)

    async def have(self, outage: Outage) -> None:
        """One outage. Cancelled, it leaves the broker as it is."""
        await self._stay(outage.up_s)
        began_at_s = trio.current_time()
        self.log.note(down_entry(outage), f"{outage.mode} for {outage.down_s:g} s (outage {outage.number})")
        match outage.mode:
            case Mode.KILL:
                self.child.signal(signal.SIGKILL)
                # Connections end as the kernel ends those of the dead broker.
                self.relay.refuse()
                await self.child.ended.wait()
                await trio.sleep(outage.down_s)
                await self.begin()
            case Mode.STOP:
                self.child.signal(signal.SIGSTOP)
                await self._stay(outage.down_s)
                self.child.signal(signal.SIGCONT)
            case Mode.REFUSE:
                self.relay.refuse()
                self.relay.reset_all()
                await self._stay(outage.down_s)
                self.relay.listen(self.brokers)
        was_down_s = round(trio.current_time() - began_at_s, 3)
        entry = {"event": "up", "number": outage.number, "mode": outage.mode.value, "was_down_s": was_down_s}
        self.log.note(entry, f"up again after {was_down_s:g} s")

    async def _stay(self, seconds: float) -> None:
        """Raises OperatorError if the broker ends meanwhile."""
        with trio.move_on_after(seconds):
            await self.child.ended.wait()
            raise OperatorError(f"The broker went away by itself: it {self.child.end()}.")

    async def end(self) -> None:
        """Have the broker stop; the relay goes on for the last words to its clients."""
        self.log.note({"event": "end"}, "stopping")
        self.relay.refuse()
        self.child.signal(signal.SIGCONT)
        self.child.signal(signal.SIGTERM)
        await self.child.ended.wait()
        with trio.move_on_after(LAST_WORDS_S):
            await self.relay.wait_left()
