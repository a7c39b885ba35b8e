"""The live view: an overview every second, for many at once, and nobody waits for anybody.

Time is real here, since a server and sockets take part; nothing is concluded from how fast something was."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, final
from urllib.parse import urlencode

import h11
import pytest
import trio

from stompbroker.management import events
from stompbroker.management.events import Events, Wish
from tests.management.asker import asking, hold_against_model, served
from tests.support.broker_under_test import running_broker
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest


EVENTS = "/api/v1/events"


@final
class Stream:
    """One client's events. By hand, since httpx leaves generators behind when an answer is not read to its end."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._received = b""

    async def ask(self, query: dict[str, str], **headers: str) -> h11.Response:
        target = f"{EVENTS}?{urlencode(query)}" if query else EVENTS
        request = h11.Request(method="GET", target=target, headers=[("Host", "localhost"), *headers.items()])
        await self._stream.send_all((self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        response = await self._next_event()
        assert isinstance(response, h11.Response)
        return response

    async def next(self) -> tuple[str, Any]:
        """Its name and its data."""
        while b"\n\n" not in self._received:
            data = await self._next_event()
            assert isinstance(data, h11.Data), data
            self._received += data.data
        event, _, self._received = self._received.partition(b"\n\n")
        name, data = event.decode().split("\n")
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    async def expect_end(self) -> None:
        """The answer is complete, after whatever events."""
        while isinstance(event := await self._next_event(), h11.Data):
            pass
        assert isinstance(event, h11.EndOfMessage), event

    async def _next_event(self) -> object:
        with trio.fail_after(HARD_TIMEOUT_S):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some()))
        return event


@asynccontextmanager
async def connected(ask: Asker) -> AsyncIterator[trio.SocketStream]:
    port = ask.client.base_url.port
    assert port is not None
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield stream


@asynccontextmanager
async def watching(ask: Asker, **query: str) -> AsyncIterator[Stream]:
    async with connected(ask) as connection:
        stream = Stream(connection)
        response = await stream.ask(query)
        assert response.status_code == 200
        headers = {name.decode(): value.decode() for name, value in response.headers}
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-store"
        assert "content-length" not in headers
        yield stream


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Nobody announces it."""
    gives_up_at_s = trio.current_time() + 20
    while not is_so():
        assert trio.current_time() < gives_up_at_s, f"in vain: {what}"
        await trio.sleep(0.01)


async def test_an_overview_comes_every_second_with_what_has_happened_since() -> None:
    async with running_broker() as broker, served(broker) as ask:
        client = await broker.client()
        async with watching(ask) as stream:
            name, first = await stream.next()
            assert name == "overview"
            hold_against_model("GET", "/overview", first)
            assert first["totals"]["published"] == 0
            latest, events_seen = first, 0
            # The rate is that of the latest sample. On a busy machine an event may come with newer counts than that, or
            # after the next sample, so something is published before each event.
            while not latest["rates"].get("published"):
                await client.publish(*[b"x"] * 10)
                await client.sync()
                name, latest = await stream.next()
                assert name == "overview"
                events_seen += 1
                assert events_seen <= 6, "a sample is taken every second while somebody watches"
            assert 10 <= latest["totals"]["published"] <= 10 * events_seen
            # Ten within a second; on a busy machine one sample comes late, and the next soon behind it.
            assert latest["rates"]["published"] <= 200


async def test_a_page_comes_with_it() -> None:
    async with running_broker() as broker, served(broker) as ask:
        client = await broker.client()
        for topic in ("quiet", "busy", "busier"):
            await client.publish(*[b"x"] * len(topic), destination=f"/topic/{topic}")
        await client.sync()
        async with watching(ask, resource="/topics?sort=-published&limit=2&q=bus") as stream:
            for _ in range(2):
                assert (await stream.next())[0] == "overview"
                name, page = await stream.next()
                assert name == "page"
                hold_against_model("GET", "/topics", page)
                assert [topic["name"] for topic in page["topics"]] == ["busier", "busy"]


async def test_what_is_wrong_with_a_page_only_later_is_an_event() -> None:
    async with running_broker() as broker, served(broker) as ask:
        async with watching(ask, resource="/topics?cursor=nonsense") as stream:
            assert (await stream.next())[0] == "overview"
            name, problem = await stream.next()
    assert name == "problem"
    assert problem["status"] == 400
    assert "next_cursor" in problem["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"resource": "/nowhere"}, "resource is one of /overview, /topics, "),
        ({"resource": "/topics/a"}, "resource is one of"),
        ({"resource": "/history"}, "resource is one of"),
        ({"resource": "/collector/run"}, "resource is one of"),
        ({"resource": ""}, "resource is one of"),
        ({"resource": "http://["}, "resource is an address"),
        ({"resource": "/topics?sort=size"}, "sort is one of"),
        ({"resource": "/topics?limit=1&limit=1"}, "given once"),
        ({"resource": "/topics?x=1"}, "it takes q, sort, limit, cursor"),
        ({"other": "1"}, "unknown in the query: other; it takes resource"),
    ],
)
async def test_what_cannot_be_watched_is_refused(query: dict[str, str], said: str) -> None:
    async with running_broker() as broker, asking(broker) as ask:
        await ask.refused(400, "GET", EVENTS, said, params=query)
        assert broker.parts.control.sampler.watchers == 0


async def test_to_ask_only_for_the_head_is_no_stream() -> None:
    async with running_broker() as broker, served(broker) as ask:
        response = await ask.client.head(EVENTS)
        assert (response.status_code, response.content) == (200, b"")
        assert broker.parts.control.sampler.watchers == 0


async def test_who_leaves_is_counted_down() -> None:
    async with running_broker() as broker, served(broker) as ask:
        sampler = broker.parts.control.sampler
        async with watching(ask) as one:
            await one.next()
            assert sampler.watchers == 1
            async with watching(ask, resource="/connections") as other:
                await other.next()
                assert sampler.watchers == 2
            await until(lambda: sampler.watchers == 1, "the other is gone")
            await one.next()
        await until(lambda: sampler.watchers == 0, "all are gone")


async def test_there_are_no_more_streams_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 3)
    async with running_broker() as broker, served(broker) as ask:
        sampler = broker.parts.control.sampler
        async with watching(ask) as one, watching(ask), watching(ask):
            await ask.refused(503, "GET", EVENTS, "3 watch already, which is all there may be")
            await ask.get("/overview")
            await one.next()
            assert sampler.watchers == 3
        await until(lambda: sampler.watchers == 0, "all are gone")
        async with watching(ask) as again:
            await again.next()


async def test_as_many_at_once_as_may_be_and_not_one_more() -> None:
    """All come in the same moment, so that no look at how many there are is before another's coming."""
    async with running_broker() as broker, served(broker) as ask:
        told: list[int] = []
        is_enough = trio.Event()

        async def watch() -> None:
            async with connected(ask) as connection:
                told.append((await Stream(connection).ask({})).status_code)
                await is_enough.wait()

        async with trio.open_nursery() as nursery:
            for _ in range(events.MAX_STREAMS + 10):
                nursery.start_soon(watch)
            await until(lambda: len(told) == events.MAX_STREAMS + 10, "everybody is answered")
            assert told.count(200) == events.MAX_STREAMS == broker.parts.control.sampler.watchers
            assert told.count(503) == 10
            is_enough.set()
        await until(lambda: broker.parts.control.sampler.watchers == 0, "all are gone")


async def test_what_many_want_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str | None] = []
    make = Events._make

    async def make_slowly(self: Events, wish: Wish) -> bytes:
        made.append(wish.resource)
        await trio.sleep(0.1)  # long enough for all others to come in between
        return await make(self, wish)

    monkeypatch.setattr(Events, "_make", make_slowly)
    async with running_broker() as broker, served(broker) as ask:
        answers: list[Any] = []

        async def watch() -> None:
            async with watching(ask, resource="/topics") as stream:
                answers.append([await stream.next(), await stream.next()])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(watch)
    assert len(answers) == 20
    assert len(made) <= 8, "one for each, and some for those who came late; not forty"
    assert set(made) == {None, "/topics"}


async def test_whoever_reads_nothing_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when what is sent to him does not fit into any buffer."""
    make = Events._make

    async def make_large(self: Events, wish: Wish) -> bytes:
        event = await make(self, wish)
        return event if wish.resource is None else b": " + b"x" * 10_000_000 + b"\n\n" + event

    monkeypatch.setattr(Events, "_make", make_large)
    async with running_broker() as broker, served(broker) as ask:
        async with connected(ask) as stuck, watching(ask) as stream:
            await stuck.send_all(b"GET /api/v1/events?resource=/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: broker.parts.control.sampler.watchers == 2, "both watch")
            for _ in range(3):
                assert (await stream.next())[0] == "overview"
            await ask.get("/topics")
        await until(lambda: broker.parts.control.sampler.watchers == 0, "it is noticed that it has left")


async def test_whoever_reads_nothing_for_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.management.server.SEND_S", 0.2)

    async def make_large(self: Events, resource: str | None) -> bytes:
        return b": " + b"x" * 10_000_000 + b"\n\n"

    monkeypatch.setattr(Events, "_make", make_large)
    async with running_broker() as broker, served(broker) as ask:
        async with connected(ask) as stuck:
            await stuck.send_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: broker.parts.control.sampler.watchers == 1, "it watches")
            await until(lambda: broker.parts.control.sampler.watchers == 0, "it is cut")
        await ask.get("/overview")


async def test_whoever_only_watches_is_not_taken_for_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream goes on although its client has nothing more to say; a connection without a request does not."""
    monkeypatch.setattr("stompbroker.management.server.IDLE_S", 0.2)
    async with running_broker() as broker, served(broker) as ask:
        async with connected(ask) as silent:
            async with watching(ask) as stream:
                await silent.send_all(b"GET /api/v1/over")
                with trio.fail_after(HARD_TIMEOUT_S):
                    assert await silent.receive_some() == b"", "half a request is given up"
                for _ in range(3):
                    await stream.next()


async def test_a_connection_too_many_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.management.server.MAX_CONNECTIONS", 2)
    async with running_broker() as broker, served(broker) as ask:
        async with watching(ask), watching(ask):
            async with connected(ask) as third:
                # Closed or reset, as it happens.
                with trio.fail_after(HARD_TIMEOUT_S), suppress(trio.BrokenResourceError):
                    assert await third.receive_some() == b""
        await until(lambda: broker.parts.control.sampler.watchers == 0, "both are gone")
        await ask.get("/overview")


async def test_messages_flow_beside_a_hundred_streams(durable_broker: BrokerUnderTest) -> None:
    async with served(durable_broker) as ask, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(_watch_for_ever, ask)
        await until(lambda: durable_broker.parts.control.sampler.watchers == 100, "all watch")
        subscriber = await durable_broker.durable_subscriber()
        await durable_broker.store_messages(*[b"%d" % number for number in range(200)])
        messages = await subscriber.next_messages(200)
        await subscriber.acknowledge(*messages)
        nursery.cancel_scope.cancel()
    assert [int(message.body) for message in messages] == list(range(200))


async def _watch_for_ever(ask: Asker) -> None:
    async with watching(ask, resource="/subscriptions") as stream:
        while True:
            await stream.next()
