"""Request and reply while servers are killed: a caller gets the answers to its own calls, and nobody else's.

Callers are connections of this process, one call at a time each. Servers are processes, killed with SIGKILL at moments
that a seed chooses by progress, one or all of a service at once. All callers give their temporary queue the same name
and count their calls from 0, so that an answer that goes astray looks right to whoever does not look inside.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, final

import trio

from benchmarks.percentiles import percentile
from soak.rpc_server import Service
from soak.stomp_client import ConnectionLost, Misbehaved, StompClient, connected, encoded
from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.stomp import Frame
    from tests.support.broker_process import Address, BrokerProcess

_REPLIES: Final = "/temp-queue/replies"
_SERVED: Final = (Service.KEPT, Service.SHARED)
#: How many of 100 calls go to which service.
_CALLED: Final = {Service.KEPT: 60, Service.SHARED: 37, Service.NOBODY: 3}
_ALL_AT_ONCE_PROBABILITY: Final = 0.2
_SHOWN_FINDINGS: Final = 20
#: What `soak.rpc_server` makes of a question: its caller and number, how it was marked, and padding.
_ANSWER: Final = re.compile(rb"(\d+) (\d+) (first|again) (\d+) (x*)")


class RpcFault(Enum):
    FOREIGN = "got what is no answer to a call of its own"
    DOUBLED = "got two answers, and no server was told that it had been given the call again"
    UNANSWERED = "got no answer, although no server was killed that could have had its call alone"
    UNTOLD = "was not told that nobody listens"
    MISTOLD = "was told that nobody listens, although somebody does"


class End(Enum):
    """How a call ended."""

    ANSWERED = "answered"
    RETURNED = "told that nobody listens"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    #: Of each caller.
    calls: int
    #: Of one server, or of all of a service.
    kills: int
    seed: int = 1
    callers: int = 100
    #: Half of them for each service.
    servers: int = 10
    #: Seconds that a caller waits for servers that may lose its call, and those after which the others are broken.
    timeout_s: float = 5.0
    stall_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcOutcome:
    findings: list[str]
    ends: Counter[End]
    #: Answers that came after another one or after a timeout.
    late: int
    kills: int
    #: How long it took to be told that nobody listens, ascending.
    told_ns: list[int]
    #: Why the run was aborted.
    misfortunes: list[str]

    def complaints(self) -> list[str]:
        """What went wrong; empty if nothing did."""
        return [*self.misfortunes, *self.findings[:_SHOWN_FINDINGS]]

    def lines(self) -> list[str]:
        ends = ", ".join(f"{self.ends[end]:,} {end.value}" for end in End)
        told = [percentile(self.told_ns, thousandths) / 1e6 for thousandths in (500, 990) if self.told_ns]
        return [
            f"{self.ends.total():,} calls: {ends}; {self.late:,} more answers after another one or a timeout",
            f"told that nobody listens within {' ms, 99 % within '.join(f'{ms:.1f}' for ms in told)} ms"
            if told
            else "",
        ]


@final
class Calls:
    """What one caller has asked and got.

    Invariant: all calls but the last one have ended.
    """

    def __init__(self, caller: int) -> None:
        self.caller = caller
        self.findings: list[str] = []
        self.late = 0
        self._services: list[Service] = []
        self._ends: dict[int, End] = {}
        #: Calls with an answer from a server that was not told that it had been given the call again.
        self._answered_first: set[int] = set()

    @property
    def asked(self) -> int:
        return len(self._services)

    @property
    def is_waiting(self) -> bool:
        return len(self._ends) < self.asked

    @property
    def ends(self) -> Counter[End]:
        return Counter(self._ends.values())

    def ask(self, service: Service) -> tuple[int, bytes]:
        """The number of the next call, and its question."""
        number = self.asked
        self._services.append(service)
        return number, self._question(number)

    def take(self, message: Frame) -> None:
        correlation = message.headers.get("correlation-id", "")
        number = int(correlation) if correlation.isdecimal() else self.asked
        if number >= self.asked:
            self._complain(RpcFault.FOREIGN, number, message.body)
        elif message.headers.get("returned") == "no-subscriber":
            self._take_back(number, message.body)
        else:
            self._take_answer(number, message.body)

    def give_up(self, *, may_be_lost: bool) -> None:
        """It has waited for long enough. `may_be_lost`: a server that acknowledges nothing was killed meanwhile."""
        number = self.asked - 1
        self._end(number, End.TIMED_OUT)
        service = self._services[number]
        if service is Service.NOBODY:
            self._complain(RpcFault.UNTOLD, number)
        elif service is Service.KEPT or not may_be_lost:
            self._complain(RpcFault.UNANSWERED, number)

    def _take_back(self, number: int, body: bytes) -> None:
        if body != self._question(number):
            self._complain(RpcFault.FOREIGN, number, body)
        elif self._services[number] is Service.KEPT or self._ends.get(number) is End.ANSWERED:
            self._complain(RpcFault.MISTOLD, number)
        else:
            self._end(number, End.RETURNED)

    def _take_answer(self, number: int, body: bytes) -> None:
        found = _ANSWER.fullmatch(body)
        is_own = found is not None and (int(found[1]), int(found[2])) == (self.caller, number)
        if found is None or not is_own or len(found[5]) != int(found[4]) or self._services[number] is Service.NOBODY:
            self._complain(RpcFault.FOREIGN, number, body)
            return
        if self._ends.get(number) is End.RETURNED:
            self._complain(RpcFault.MISTOLD, number)
        if found[3] == b"first":
            if number in self._answered_first:
                self._complain(RpcFault.DOUBLED, number)
            self._answered_first.add(number)
        self._end(number, End.ANSWERED)

    def _end(self, number: int, end: End) -> None:
        if number in self._ends:
            self.late += 1
        else:
            self._ends[number] = end

    def _question(self, number: int) -> bytes:
        return b"%d %d" % (self.caller, number)

    def _complain(self, fault: RpcFault, number: int, body: bytes = b"") -> None:
        got = f": {body[:60]!r}" if body else ""
        self.findings.append(f"{fault.name}: caller {self.caller} {fault.value} (call {number}{got})")


async def run_rpc(
    settings: RpcSettings, broker: BrokerProcess, *, show: Callable[[str], None] = lambda _text: None
) -> RpcOutcome:
    """The broker must be running, and is not killed."""
    random = Random(settings.seed)
    misfortunes: list[str] = []
    servers = _Servers(broker.address)
    stage = _Stage(settings, servers, random, show)
    callers = [_Caller(number, Random(random.random()), settings, stage) for number in range(settings.callers)]
    try:
        for number in range(settings.servers):
            await servers.start(number)
        async with trio.open_nursery() as nursery:
            stage.nursery = nursery
            for caller in callers:
                nursery.start_soon(caller.run, broker.address)
        misfortunes += servers.complaints()
    except* (Misbehaved, ConnectionLost) as group:
        misfortunes += [f"MISBEHAVED: {each!r}" for each in group.exceptions] + servers.complaints()
    finally:
        servers.clean_up()
    all_calls = [caller.calls for caller in callers]
    return RpcOutcome(
        findings=[finding for calls in all_calls for finding in calls.findings],
        ends=sum((calls.ends for calls in all_calls), Counter()),
        late=sum(calls.late for calls in all_calls),
        kills=stage.kills,
        told_ns=sorted(told for caller in callers for told in caller.told_ns),
        misfortunes=misfortunes,
    )


@final
class _Servers:
    """Invariant: server n has a process, except from its kill until it is subscribed again."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._processes: dict[int, PreparedProcess[bytes]] = {}

    @staticmethod
    def service_of(number: int) -> Service:
        return _SERVED[number % len(_SERVED)]

    def of(self, service: Service) -> list[int]:
        """Those that can be killed."""
        return sorted(number for number in self._processes if self.service_of(number) is service)

    async def start(self, number: int) -> None:
        self._processes[number] = await trio.to_thread.run_sync(self._subscribed, self.service_of(number))

    def _subscribed(self, service: Service) -> PreparedProcess[bytes]:
        command = [*PYTHON, "-m", "soak.rpc_server", self._address.host, str(self._address.port), service.name]
        process: PreparedProcess[bytes] = PreparedProcess(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=clean_environment()
        )
        assert process.stdout is not None
        with process.stdout as output:
            output.readline()
        return process

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def complaints(self) -> list[str]:
        """Those that ended although nobody killed them."""
        codes = {number: process.poll() for number, process in self._processes.items()}
        return [
            f"MISBEHAVED: server {number} has ended with exit code {code}; it has printed why"
            for number, code in codes.items()
            if code is not None
        ]

    def clean_up(self) -> None:
        for number in list(self._processes):
            self.kill(number)


@final
class _Stage:
    """Counts calls, and kills when it is time."""

    def __init__(self, settings: RpcSettings, servers: _Servers, random: Random, show: Callable[[str], None]) -> None:
        self.kills = 0
        #: When servers that acknowledge nothing were last killed.
        self.lost_at = -math.inf
        self.nursery: trio.Nursery | None = None
        self._servers = servers
        self._random = random
        self._show = show
        self._ended = 0
        self._calls = settings.calls * settings.callers
        stretch = self._calls / settings.kills if settings.kills else 0
        #: After how many calls each kill is due: one at a random place in each of as many equal parts of the run.
        self._due = [int((number + random.random()) * stretch) for number in range(settings.kills)]

    def note_end(self) -> None:
        self._ended += 1
        if self.kills < len(self._due) and self._ended > self._due[self.kills]:
            self._kill()
        self._show(f"kill {self.kills} of {len(self._due)}: {self._ended:,} of {self._calls:,} calls")

    def _kill(self) -> None:
        """If all of the service are being restarted, it is tried again after the next call."""
        service = self._random.choice(_SERVED)
        there = self._servers.of(service)
        if not there:
            return
        self.kills += 1
        if service is Service.SHARED:
            self.lost_at = trio.current_time()
        if self._random.random() >= _ALL_AT_ONCE_PROBABILITY:
            there = [self._random.choice(there)]
        assert self.nursery is not None
        for number in there:
            self._servers.kill(number)
            self.nursery.start_soon(self._servers.start, number)


@final
class _Caller:
    def __init__(self, number: int, random: Random, settings: RpcSettings, stage: _Stage) -> None:
        self.calls = Calls(number)
        self.told_ns: list[int] = []
        self._random = random
        self._settings = settings
        self._stage = stage

    async def run(self, address: Address) -> None:
        async with connected(address) as client:
            while self.calls.asked < self._settings.calls and not self.calls.findings:
                (service,) = self._random.choices(list(_CALLED), list(_CALLED.values()))
                await self._call(client, service)
                self._stage.note_end()
            await self._leave(client)

    async def _call(self, client: StompClient, service: Service) -> None:
        """In one round trip: nothing more is said until it has ended."""
        number, question = self.calls.ask(service)
        headers = {
            "destination": service.value,
            "reply-to": _REPLIES,
            "correlation-id": str(number),
            "mandatory": "true",
        }
        began_at = trio.current_time()
        await client.send(encoded("SEND", headers, question))
        patience_s = self._settings.timeout_s if service is Service.SHARED else self._settings.stall_s
        with trio.move_on_after(patience_s):
            while self.calls.is_waiting:
                for message in await client.wait_frames():
                    self.calls.take(message)
        if self.calls.is_waiting:
            # The broker may have noticed a kill some time after it.
            self.calls.give_up(may_be_lost=self._stage.lost_at > began_at - patience_s)
        elif service is Service.NOBODY:
            self.told_ns.append(int((trio.current_time() - began_at) * 1e9))

    async def _leave(self, client: StompClient) -> None:
        """Once it has taken what still came."""
        await client.send(encoded("DISCONNECT", {"receipt": "left"}))
        while True:
            for frame in await client.wait_frames():
                if frame.command == "RECEIPT":
                    return
                self.calls.take(frame)
