"""What TLS, WebSocket and login cost: `python -m benchmarks.access_cost`.

Every ratio is of one run, interleaved. It is not one of the scenarios, because the roles of those speak plain TCP.

    throughput   topic 1 → 1 over TLS and WebSocket, as parts of TCP (0.5 and 0.35 at least); by the clock, and by the
                 processor time of the broker, which a busy machine changes less. WebSocket twice: publishers put many
                 frames into a message, or one frame, as most clients do
    memory       of an idle connection (80 KiB at most over TLS, 40 KiB over WebSocket)
    storm        5,000 clients of 50 users log in at once (60 s at most), and the latency of somebody else meanwhile
    wrong        1,000 wrong logins a second beside others, whose p99 may be 1.5 times as high
    timing       answers to an unknown user and to a wrong password
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import ssl
import statistics
import subprocess
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import trio
from websockets.frames import Frame, Opcode

from benchmarks import frames
from benchmarks.broken import Broken
from benchmarks.broker_process import running_broker
from benchmarks.disk_directory import disk_directory
from benchmarks.measuring.idle_connections import allow_open_files
from benchmarks.peers.free_port import free_port
from benchmarks.percentiles import percentile
from stompbroker.access import Right, User, Users, change_users, hash_password

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from benchmarks.broker_process import BrokerProcess

_HOST: Final = "127.0.0.1"
#: So that it is not the others who are refused.
_GUESSERS_HOST: Final = "127.0.0.2"
_OPEN_GUESSES: Final = 50
_TOPIC: Final = "/topic/benchmark"
_BODY: Final = b"x" * 256
_CHUNK_BYTES: Final = 64 * 1024
_PASSWORD: Final = "a password"
_REQUEST: Final = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TIMEOUT_S: Final = 60.0
_KIB: Final = 1024
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 3
    messages: int = 200_000
    connections: int = 1000
    clients: int = 5000
    users: int = 50
    seconds: float = 10.0
    guesses: int = 100


QUICK: Final = Sizes(rounds=1, messages=20_000, connections=100, clients=200, users=10, seconds=2.0, guesses=10)


# Clients --------------------------------------------------------------------------------------------------------------


@final
class Client:
    """A blocking client over `tcp`, `tls` or `ws`."""

    def __init__(self, carrier: str, port: int, **headers: str) -> None:
        self._is_websocket = carrier == "ws"
        self.socket = socket.create_connection((_HOST, port), timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        if carrier == "tls":
            self.socket = _client_tls().wrap_socket(self.socket)
        if self._is_websocket:
            self.socket.sendall(_REQUEST)
            while b"\r\n\r\n" not in self._received:
                self._received += self.socket.recv(_CHUNK_BYTES)
            self._received = self._received.partition(b"\r\n\r\n")[2]
        self.send(connect_frame(**headers))
        self.take(b"CONNECTED")

    def send(self, data: bytes) -> None:
        self.socket.sendall(self.message(data))

    def message(self, data: bytes) -> bytes:
        """What is sent for these frames: over WebSocket, one message."""
        return Frame(Opcode.BINARY, data).serialize(mask=True) if self._is_websocket else data

    def receive(self) -> bytes:
        """The next bytes of STOMP."""
        while True:
            if not self._is_websocket:
                return self.socket.recv(_CHUNK_BYTES)
            payload = self._unwrapped()
            if payload:
                return payload
            chunk = self.socket.recv(_CHUNK_BYTES)
            if not chunk:
                return b""
            self._received += chunk

    def _unwrapped(self) -> bytes:
        """The payload of all messages that have come in full."""
        data, at, payload = self._received, 0, []
        while len(data) >= at + 2:
            start = at + 2 + {126: 2, 127: 8}.get(data[at + 1], 0)
            length = int.from_bytes(data[at + 2 : start], "big") if start > at + 2 else data[at + 1]
            if len(data) < max(start, start + length):
                break
            payload.append(data[start : start + length])
            at = start + length
        self._received = data[at:]
        return b"".join(payload)

    def take(self, command: bytes) -> bytes:
        answer = b""
        while b"\0" not in answer:
            chunk = self.receive()
            if not chunk:
                raise Broken(f"the broker has closed instead of {command.decode()}")
            answer += chunk
        if not answer.lstrip().startswith(command):
            raise Broken(f"{command.decode()} was expected, not {answer[:300]!r}")
        return answer

    def subscribe(self) -> None:
        self.send(frames.subscribe(_TOPIC, receipt="subscribed"))
        self.take(b"RECEIPT")


def connect_frame(**headers: str) -> bytes:
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n{lines}\n\0".encode()


def _client_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the broker's own, on loopback
    return context


# The broker -----------------------------------------------------------------------------------------------------------


@contextmanager
def broker_with_carriers() -> Iterator[tuple[BrokerProcess, dict[str, int]]]:
    """With the port of each carrier."""
    with disk_directory("stompbroker-certificate-") as directory:
        key, certificate = directory / "key.pem", directory / "certificate.pem"
        making = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -days 30"
        )
        command = [*making.split(), "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        tls, ws = free_port(), free_port()
        settings = (
            f'listen = ["stomp+tls://{_HOST}:{tls}", "ws://{_HOST}:{ws}/"]\n'
            f'tls_certificate = "{certificate}"\ntls_key = "{key}"\nhttp_enabled = false\n'
        )
        with running_broker(settings) as target:
            yield target, {"tcp": target.address.port, "tls": tls, "ws": ws}


@contextmanager
def broker_with_users(names: list[str], settings: str = "") -> Iterator[BrokerProcess]:
    """Each has the same password, hashed with the default parameters for itself."""
    with disk_directory("stompbroker-users-") as directory:
        everything = {Right.READ: (">",), Right.WRITE: (">",)}
        users = {
            name: User(password=hash_password(_PASSWORD, memory_bytes=19 * 1024 * 1024, passes=2), patterns=everything)
            for name in names
        }
        path = Path(directory, "users.toml")
        change_users(path, lambda _: Users(users))
        with running_broker(f'users_file = "{path}"\nhttp_enabled = false\n{settings}') as target:
            yield target


@contextmanager
def process(work: object, *arguments: object) -> Iterator[Connection]:
    """Another process, which is told to stop by the end of the connection."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    started = context.Process(target=work, args=(theirs, *arguments))  # type: ignore[arg-type]
    started.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        started.join(_TIMEOUT_S)
        if started.is_alive():
            started.kill()


# Throughput and memory ------------------------------------------------------------------------------------------------


def count_messages(told: Connection, carrier: str, port: int, messages: int) -> None:
    subscriber = Client(carrier, port)
    subscriber.subscribe()
    told.send("ready")
    received = 0
    while received < messages:
        chunk = subscriber.receive()
        if not chunk:
            raise Broken("the broker has closed")
        received += chunk.count(0)
    told.send("done")


def publish(told: Connection, carrier: str, port: int, messages: int, frames_per_message: int) -> None:
    publisher, one = Client(carrier, port), frames.send(_TOPIC, _BODY)
    batch = 200
    pieces = [publisher.message(one * frames_per_message) for _ in range(batch // frames_per_message)]
    data = b"".join(pieces)
    told.send("ready")
    told.recv()
    for _ in range(messages // batch):
        publisher.socket.sendall(data)
    told.send("sent")


def measure_flow(
    target: BrokerProcess, carrier: str, port: int, messages: int, frames_per_message: int
) -> tuple[float, float]:
    """Messages a second, and messages for a second of the broker's processor time."""
    with (
        process(count_messages, carrier, port, messages) as subscriber,
        process(publish, carrier, port, messages, frames_per_message) as publisher,
    ):
        for each in (subscriber, publisher):
            each.recv()
        processor_s, began_at = target.processor_s(), time.monotonic()
        publisher.send("go")
        if not subscriber.poll(_TIMEOUT_S) or subscriber.recv() != "done":
            raise Broken(f"not all messages came over {carrier}")
        return messages / (time.monotonic() - began_at), messages / (target.processor_s() - processor_s)


def compare_throughput(sizes: Sizes) -> None:
    flows = {"TCP": ("tcp", 200), "TLS": ("tls", 200), "WebSocket, many": ("ws", 200), "WebSocket, one": ("ws", 1)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in flows}
    with broker_with_carriers() as (target, ports):
        for _ in range(sizes.rounds):
            for name, (carrier, per_message) in flows.items():
                found[name].append(measure_flow(target, carrier, ports[carrier], sizes.messages, per_message))
    for name, figures in found.items():
        by_clock, by_processor = (
            statistics.median(one[which] / tcp[which] for one, tcp in zip(figures, found["TCP"], strict=True))
            for which in (0, 1)
        )
        rate = statistics.median(one[0] for one in figures)
        print(
            f"throughput over {name}: {rate:,.0f}/s, of TCP {by_clock:.2f} by the clock, {by_processor:.2f} by the "
            "broker's processor time",
            flush=True,
        )


def measure_memory(sizes: Sizes) -> None:
    allow_open_files(3 * sizes.connections)
    for carrier in ("tcp", "tls", "ws"):
        with broker_with_carriers() as (target, ports), ExitStack() as opened:
            for _ in range(20):  # what is imported and made only once
                opened.enter_context(Client(carrier, ports[carrier]).socket)
            time.sleep(1)
            before = target.resident_bytes()
            for _ in range(sizes.connections):
                client = Client(carrier, ports[carrier])
                opened.enter_context(client.socket)
                client.subscribe()
            time.sleep(1)
            each_bytes = (target.resident_bytes() - before) / sizes.connections
            print(f"memory of an idle connection over {carrier}: {each_bytes / _KIB:.1f} KiB", flush=True)


# Login ----------------------------------------------------------------------------------------------------------------


def probe_latency(told: Connection, port: int, user: str) -> None:
    """A message to itself every 5 ms until it is told to stop; then all latencies in nanoseconds."""
    client = Client("tcp", port, login=user, passcode=_PASSWORD)
    client.subscribe()
    told.send("ready")
    latencies_ns = []
    while not told.poll(0.005):
        began_at_ns = time.monotonic_ns()
        client.send(frames.send(_TOPIC, _BODY))
        client.take(b"MESSAGE")
        latencies_ns.append(time.monotonic_ns() - began_at_ns)
    told.recv()
    told.send(latencies_ns)


def latencies(target: BrokerProcess, user: str, wait: object) -> list[int]:
    """Of a client that is logged in, while `wait` runs."""
    with process(probe_latency, target.address.port, user) as probe:
        probe.recv()
        wait()  # type: ignore[operator]
        probe.send("stop")
        measured: list[int] = sorted(probe.recv())
    return measured


def shown(latencies_ns: list[int]) -> str:
    p50, p99 = (percentile(latencies_ns, thousandths) / _NS_PER_MS for thousandths in (500, 990))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms of {len(latencies_ns)}"


async def storm(port: int, names: list[str], clients: int) -> list[float]:
    """How long each of the clients took to be in, all of them at once."""
    took_s: list[float] = []
    began_at = time.monotonic()

    async def log_in(number: int) -> None:
        stream = await trio.open_tcp_stream(_HOST, port)
        async with stream:
            await stream.send_all(connect_frame(login=names[number % len(names)], passcode=_PASSWORD))
            answer = bytes(await stream.receive_some())
            if not answer.startswith(b"CONNECTED"):
                raise Broken(f"client {number} got {answer[:200]!r}")
            took_s.append(time.monotonic() - began_at)
            await everybody_is_in.wait()

    everybody_is_in = trio.Event()
    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(log_in, number)
        while len(took_s) < clients:  # noqa: ASYNC110
            await trio.sleep(0.01)
        everybody_is_in.set()
    return took_s


def measure_storm(sizes: Sizes) -> None:
    allow_open_files(sizes.clients + 100)
    names = [f"user{number}" for number in range(sizes.users)]
    with broker_with_users([*names, "probe"]) as target:
        alone = latencies(target, "probe", lambda: time.sleep(sizes.seconds / 2))
        took_s: list[float] = []
        beside = latencies(
            target, "probe", lambda: took_s.extend(trio.run(storm, target.address.port, names, sizes.clients))
        )
    print(
        f"login storm of {sizes.clients:,} clients of {sizes.users} users: all in after {max(took_s):.1f} s, half "
        f"after {statistics.median(took_s):.1f} s\n  somebody else alone: {shown(alone)}\n  meanwhile: {shown(beside)}",
        flush=True,
    )


def guess(told: Connection, port: int, per_s: int) -> None:
    """Wrong logins at a fixed rate, until it is told to stop; then how many there were. At a low priority: with two
    cores it would otherwise keep the others from theirs, whatever the broker does."""
    os.nice(19)
    began_at, data = time.monotonic(), connect_frame(login="user0", passcode="wrong")
    open_guesses: deque[socket.socket] = deque()
    for number in count():
        if told.poll(max(0.0, began_at + number / per_s - time.monotonic())):
            break
        guessing = socket.create_connection((_HOST, port), timeout=_TIMEOUT_S, source_address=(_GUESSERS_HOST, 0))
        open_guesses.append(guessing)
        with suppress(OSError):  # most of a flood are closed at once
            guessing.sendall(data)
        if len(open_guesses) > _OPEN_GUESSES:
            with open_guesses.popleft() as oldest, suppress(OSError):
                oldest.recv(1000)
    told.recv()
    told.send(number / (time.monotonic() - began_at))


def compare_wrong_logins(sizes: Sizes) -> None:
    with broker_with_users(["user0", "probe"]) as target:
        ratios, rates = [], []
        for _ in range(sizes.rounds):
            alone = latencies(target, "probe", lambda: time.sleep(sizes.seconds))
            with process(guess, target.address.port, 1000) as guessing:
                beside = latencies(target, "probe", lambda: time.sleep(sizes.seconds))
                guessing.send("stop")
                rates.append(guessing.recv())
            ratios.append(percentile(beside, 990) / percentile(alone, 990))
            print(f"  alone: {shown(alone)}; beside wrong logins: {shown(beside)}", flush=True)
    print(
        f"{statistics.median(rates):,.0f} wrong logins a second: p99 of others {statistics.median(ratios):.2f} times "
        "as high",
        flush=True,
    )


def compare_timing(sizes: Sizes) -> None:
    took_s: dict[str, list[float]] = {"user0": [], "nobody": []}
    with broker_with_users(["user0"], "max_login_failures = 100000\n") as target:
        for number in range(sizes.guesses + 1):
            for name, found in took_s.items():
                with socket.create_connection((_HOST, target.address.port), timeout=_TIMEOUT_S) as guessing:
                    began_at = time.perf_counter()
                    guessing.sendall(connect_frame(login=name, passcode=f"wrong {number} {os.getpid()}"))
                    guessing.recv(1000)
                    if number:
                        found.append(time.perf_counter() - began_at)
    known, unknown = (statistics.median(found) * 1000 for found in took_s.values())
    print(f"a wrong password is answered after {known:.2f} ms, an unknown user after {unknown:.2f} ms", flush=True)


_MEASUREMENTS: Final = {
    "throughput": compare_throughput,
    "memory": measure_memory,
    "storm": measure_storm,
    "wrong": compare_wrong_logins,
    "timing": compare_timing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of each: does it work")
    parser.add_argument("--only", choices=tuple(_MEASUREMENTS))
    given = parser.parse_args()
    for name, measure in _MEASUREMENTS.items():
        if given.only in (None, name):
            measure(QUICK if given.quick else Sizes())


if __name__ == "__main__":
    main()
