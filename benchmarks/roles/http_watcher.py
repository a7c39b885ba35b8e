"""A role that watches the broker over HTTP while others are measured, until it is told to stop.

As its assignment says: event streams that are read, one that is not, a scrape of `/metrics` every second, and timed
requests at a fixed rate.
"""

from __future__ import annotations

import http.client
import selectors
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.roles.child_end import Stage

if TYPE_CHECKING:
    from benchmarks.roles.child_end import ChildEnd

_SCRAPE_S: Final = 1.0
_RECEIVE_BYTES: Final = 256 * 1024
_TIMEOUT_S: Final = 30.0
#: Requests more than the socket buffers of both ends hold.
_STUCK_REQUESTS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWatcherAssignment:
    host: str
    port: int
    #: Event streams that are read.
    streams: int = 0
    #: Whether another client requests a lot and reads nothing.
    has_stuck_client: bool = False
    scrapes: bool = False
    #: Paths requested in turn, and the time between two requests.
    questions: tuple[str, ...] = ()
    interval_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWatcherReport:
    scrapes: int
    event_bytes: int
    #: Duration of each answer, by path.
    answers_ns: dict[str, list[int]] = field(default_factory=dict)


def run(assignment: HttpWatcherAssignment, control: ChildEnd) -> HttpWatcherReport:
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for _ in range(assignment.streams):
            stream = opened.enter_context(_opened_stream(assignment))
            selector.register(stream, selectors.EVENT_READ)
        if assignment.has_stuck_client:
            opened.enter_context(_stuck_client(assignment))
        client = http.client.HTTPConnection(assignment.host, assignment.port, timeout=_TIMEOUT_S)
        opened.callback(client.close)
        control.reach(Stage.READY)
        return _watch(assignment, control, selector, client)


def _watch(
    assignment: HttpWatcherAssignment,
    control: ChildEnd,
    selector: selectors.BaseSelector,
    client: http.client.HTTPConnection,
) -> HttpWatcherReport:
    scrapes = event_bytes = asked = 0
    answers_ns: dict[str, list[int]] = {path: [] for path in assignment.questions}
    next_scrape_at = next_question_at = time.monotonic()
    while not control.has_word():
        now = time.monotonic()
        if assignment.scrapes and now >= next_scrape_at:
            next_scrape_at += _SCRAPE_S
            _ask(client, "/metrics")
            scrapes += 1
        if assignment.questions and now >= next_question_at:
            next_question_at = max(next_question_at + assignment.interval_s, now)
            path = assignment.questions[asked % len(assignment.questions)]
            asked += 1
            answers_ns[path].append(_ask(client, path))
        for key, _ in selector.select(0.01):
            if isinstance(key.fileobj, socket.socket):
                received = key.fileobj.recv(_RECEIVE_BYTES)
                if not received:
                    raise Broken("an event stream has ended")
                event_bytes += len(received)
    control.wait_word()
    return HttpWatcherReport(scrapes=scrapes, event_bytes=event_bytes, answers_ns=answers_ns)


def _ask(client: http.client.HTTPConnection, path: str) -> int:
    """Duration of the answer up to its last byte."""
    began_at_ns = time.monotonic_ns()
    try:
        client.request("GET", path)
        response = client.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        # The server closes idle connections; try again on a new one.
        client.close()
        began_at_ns = time.monotonic_ns()
        client.request("GET", path)
        response = client.getresponse()
        response.read()
    if response.status != 200:
        raise Broken(f"{path} was answered with {response.status}")
    return time.monotonic_ns() - began_at_ns


def _opened_stream(assignment: HttpWatcherAssignment) -> socket.socket:
    stream = socket.create_connection((assignment.host, assignment.port), _TIMEOUT_S)
    stream.sendall(b"GET /api/v1/events?resource=/topics%3Fsort=-rate HTTP/1.1\r\nHost: localhost\r\n\r\n")
    begun = stream.recv(_RECEIVE_BYTES)
    if not begun.startswith(b"HTTP/1.1 200"):
        raise Broken(f"an event stream was refused: {begun[:100]!r}")
    return stream


def _stuck_client(assignment: HttpWatcherAssignment) -> socket.socket:
    stuck = socket.create_connection((assignment.host, assignment.port), _TIMEOUT_S)
    stuck.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(_STUCK_REQUESTS):
            stuck.send(b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return stuck
