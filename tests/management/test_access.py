"""Who may ask what, and what is told to those who may not."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from pydantic import ValidationError

from stompbroker import broker as broker_module
from stompbroker.config import Settings, effective
from stompbroker.control import METHODS
from stompbroker.errors import OperatorError
from stompbroker.management.application import make_application
from stompbroker.transport import is_loopback
from tests.management.asker import access_to, asking
from tests.support.broker_process import BrokerProcess, wait_until
from tests.support.broker_process import running_broker as running_process
from tests.support.prepared_process import run_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


TOKEN = "a-token-that-nobody-guesses"
OVERVIEW = "/api/v1/overview"
RUN = "/api/v1/collector/run"
JSON = {"Content-Type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Loopback and tokens --------------------------------------------------------------------------------------------------


async def test_on_a_loopback_address_nobody_needs_a_token(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    async with asking(broker) as ask:
        await ask.get("/overview")
        await ask.post("/collector/run")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "192.0.2.7"])
async def test_where_a_token_is_set_it_is_needed(broker: BrokerUnderTest, host: str, autojump_clock: MockClock) -> None:
    async with asking(broker, host=host, token=TOKEN) as ask:
        for method, path in (
            ("GET", OVERVIEW),
            ("HEAD", OVERVIEW),
            ("GET", "/metrics"),
            ("GET", "/api/v1/events"),
            ("POST", RUN),
            ("GET", "/nowhere"),
        ):
            for headers in (
                {},
                bearer("another"),
                bearer(TOKEN[:-1]),
                bearer(""),
                {"Authorization": TOKEN},
                {"Authorization": f"Basic {TOKEN}"},
                {"Authorization": "Bearer ü".encode()},
            ):
                response = await ask.client.request(method, path, headers=headers)  # type: ignore[arg-type]
                assert response.status_code == 401, (path, headers)
                assert response.headers["www-authenticate"] == 'Bearer realm="stompbroker"'
                assert TOKEN not in response.text
        response = await ask.refused(401, "GET", OVERVIEW, "Authorization: Bearer TOKEN", "http_token")
        for headers in (bearer(TOKEN), {"Authorization": f"bearer  {TOKEN} "}):
            assert (await ask.client.get(OVERVIEW, headers=headers)).status_code == 200
            assert (await ask.client.post(RUN, headers=headers)).status_code == 200


async def test_what_tells_nothing_of_what_the_broker_holds_is_open(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker, token=TOKEN) as ask:
        for path in ("/", "/health/live", "/health/ready", "/api/docs", "/api/openapi.json", "/static/style.css"):
            response = await ask.client.get(path)
            assert response.status_code == 200, path
        await ask.refused(404, "GET", "/static/..%2Fapi.py", "nothing at this address")
        await ask.refused(404, "GET", "/health/..%2Fapi%2Fv1%2Foverview", "nothing at this address")
        await ask.refused(404, "GET", "/static/no-such.css", "nothing at this address")
        await ask.refused(404, "GET", "/health/elsewhere", "nothing at this address")


async def test_no_host_opens_another_path(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """What a client writes into Host must not end up in the path that is looked at."""
    async with asking(broker, host="0.0.0.0", token=TOKEN) as ask:
        for host in ("localhost/health/?", "localhost/static/", "x/health/#", "localhost\\health\\", "[", "", "a b"):
            response = await ask.client.get(OVERVIEW, headers={"Host": host})
            assert response.status_code == 401, host


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("192.0.2.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_what_is_loopback(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


# Browsers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8613", "LOCALHOST", "127.0.0.1:9", "127.0.0.2", "[::1]:8613", "[::1]"]
)
async def test_a_host_that_is_this_machine_is_served(
    host: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        assert (await ask.client.get(OVERVIEW, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8613", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil.example"),
        *("", "[", "[::1", "]", "localhost@evil.example", "a:b:c", "%00", "[::1]evil.example"),
    ],
)
async def test_a_name_that_was_rebound_to_us_is_not(
    host: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        for path in (OVERVIEW, "/", "/health/ready", "/metrics"):
            await ask.refused(421, "GET", path, "use localhost or 127.0.0.1", headers={"Host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8613", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
async def test_another_site_changes_nothing(
    headers: dict[str, str], broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber()
    connection = f"/api/v1/connections/{subscriber.session.connection_id}"
    async with asking(broker) as ask:
        for method, path in (("POST", RUN), ("DELETE", connection), ("PUT", OVERVIEW)):
            await ask.refused(403, method, path, "not from another site", headers=headers)
        assert (await ask.client.get(OVERVIEW, headers=headers)).status_code == 200, "looking is no change"
    await subscriber.sync()


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://localhost:8613", "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}],
    ids=str,
)
async def test_our_own_page_and_programs_may_act(
    headers: dict[str, str], broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        assert (await ask.client.post(RUN, headers=headers)).status_code == 200


async def test_every_answer_tells_browsers_what_it_may_be_used_for(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        for path in ("/", "/static/app.js", "/api/docs", OVERVIEW, "/nowhere", "/health/live"):
            headers = (await ask.client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["referrer-policy"] == "no-referrer", path
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy, "no inline script"
            assert "frame-ancestors 'none'" in policy
            assert not [name for name in headers if name.startswith("access-control-")]
        page = await ask.client.get("/")
        assert page.headers["content-type"].startswith("text/html")


# What is asked for ----------------------------------------------------------------------------------------------------


async def test_what_is_not_understood_is_refused_with_what_would_be(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    redrive: Any = "/api/v1/dead-letters/a/redrive"
    async with asking(broker) as ask:
        for status, method, path, request, said in (
            (400, "GET", OVERVIEW + "?x=1", {}, ("unknown in the query: x", "it takes none")),
            (400, "GET", "/api/v1/topics?sortt=name", {}, ("sortt", "it takes q, sort, limit, cursor")),
            (400, "GET", "/api/v1/topics?limit=1&limit=2", {}, ("given once",)),
            (400, "GET", "/api/v1/topics?limit=0", {}, ("limit is a whole number from 1 to 1000",)),
            (400, "GET", "/api/v1/topics?limit=ten", {}, ("limit is a whole number from 1 to 1000, not 'ten'",)),
            (400, "GET", "/api/v1/topics?limit=", {}, ("limit is a whole number",)),
            (400, "GET", "/api/v1/topics?sort=size", {}, ("sort is one of name, published",)),
            (400, "GET", "/api/v1/topics?cursor=x", {}, ("next_cursor",)),
            (400, "GET", "/api/v1/topics?q=%00", {}, ("NUL",)),
            (400, "GET", "/api/v1/subscriptions?durable=yes", {}, ("durable is true or false",)),
            (400, "GET", "/api/v1/topics/a.*", {}, ("is a pattern",)),
            (400, "GET", "/api/v1/connections/one", {}, ("id is a whole number",)),
            (400, "GET", "/api/v1/connections/0", {}, ("from 1",)),
            (404, "GET", "/api/v1/connections/99", {}, ("there is no connection 99",)),
            (404, "GET", "/api/v1/topics/b", {}, ("there is no topic 'b'",)),
            (404, "GET", "/api/v1/topics/a/messages/x", {}, ("no message was ever called 'x'",)),
            (404, "GET", "/api/v1/subscriptions/x", {}, ("there is no subscription 'x'",)),
            (404, "GET", "/api/v1/topics/", {}, ("nothing at this address",)),
            (404, "GET", "/api/v1", {}, ("nothing at this address; see /api/docs",)),
            (400, "POST", redrive, {"json": {"limits": 1}}, ("unknown in the body: limits", "it takes subscription")),
            (400, "POST", redrive, {"content": b'{"\\ud800":1}', "headers": JSON}, ("unknown in the body",)),
            (400, "POST", redrive, {"json": {"limit": 101}}, ("limit is a whole number from 1 to 100",)),
            (400, "POST", redrive, {"json": {"limit": True}}, ("limit is a whole number",)),
            (400, "POST", redrive, {"json": {"reason": 7}}, ("reason is a text",)),
            (400, "POST", redrive, {"json": {"to": "moon"}}, ("to is one of subscriber, topic",)),
            (400, "POST", redrive, {"json": [1]}, ("the body is a JSON object",)),
            (400, "POST", RUN, {"json": {"now": 1}}, ("unknown in the body: now; it takes none",)),
            (400, "POST", "/api/v1/subscriptions/x/move", {"json": {}}, ("missing: to",)),
            (404, "POST", redrive, {"json": {}}, ("there are no dead letters of 'a'",)),
        ):
            await ask.refused(status, method, path, *said, **request)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 10_000, b"1" * 9_000, b'{"a":1}x', b"nul"])
async def test_a_body_that_is_not_json(content: bytes, broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    async with asking(broker) as ask:
        await ask.refused(400, "POST", RUN, "the body is not JSON", content=content, headers=JSON)


async def test_a_body_of_another_kind_and_one_that_is_too_large(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            headers = {"Content-Type": kind}
            await ask.refused(415, "POST", RUN, "Content-Type: application/json", content=b"{}", headers=headers)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert (await ask.client.post(RUN, content=b"{}", headers=headers)).status_code == 200
        large = b'{"a":"' + b"x" * 16 * 1024 + b'"}'
        await ask.refused(413, "POST", RUN, "16384 bytes", content=large, headers=headers)
        assert (await ask.client.post(RUN)).status_code == 200, "no body is an empty one"


async def test_another_method_is_told_which_are_allowed(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    async with asking(broker) as ask:
        for method, path, allowed in (
            ("POST", OVERVIEW, {"GET", "HEAD"}),
            ("DELETE", "/metrics", {"GET", "HEAD"}),
            ("GET", RUN, {"POST"}),
            ("PUT", "/api/v1/subscriptions/x", {"GET", "HEAD", "DELETE"}),
            ("PATCH", "/api/v1/connections/1", {"GET", "HEAD", "DELETE"}),
            ("POST", "/api/v1/events", {"GET", "HEAD"}),
        ):
            response = await ask.refused(405, method, path, "does not take that method")
            assert set(response.headers["allow"].split(", ")) == allowed


async def test_a_mistake_of_ours_is_one_answer_and_one_line(
    broker: BrokerUnderTest,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    application = make_application(broker.parts.control, access_to(broker))
    monkeypatch.setattr(
        "stompbroker.control.control.METHODS", {**METHODS, "overview": METHODS["overview"]._replace(function=fail)}
    )
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        failed = await client.get(OVERVIEW)
        assert (failed.status_code, failed.headers["content-type"]) == (500, "application/problem+json")
        assert "a bug" not in failed.text
        assert (await client.get("/api/v1/topics")).status_code == 200
    assert capsys.readouterr().out.count("a management request failed") == 1


# Settings -------------------------------------------------------------------------------------------------------------


def test_without_a_token_serve_refuses_an_address_that_others_reach(tmp_path: Path) -> None:
    done = run_program("serve", "--port", "0", "--data", str(tmp_path / "data"), "--http-host", "0.0.0.0")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "http_host (0.0.0.0) can be reached from elsewhere" in said
    assert "users add NAME" in said
    assert "set http_token or http_token_file" in said
    assert "Traceback" not in done.stderr


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OperatorError) as caught:
            await broker_module.run(Settings(data=tmp_path / "data", port=0, http_port=port))
    assert str(port) in str(caught.value)
    assert "That is the management endpoint: give it another port with --http-port" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), (b"\xff\xfe", "cannot be read"), (b"short\n", "at least 16 characters")],
)
async def test_a_token_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    settings = Settings(data=tmp_path / "data", port=0, http_port=0, http_token_file=str(file))
    with pytest.raises(OperatorError, match=said) as caught:
        await broker_module.run(settings)
    assert f"{file} (http_token_file)" in str(caught.value)


@pytest.mark.parametrize("token", ["fifteen-letters", "sixteen letters!", "sixteen-letters-\n", "sechzehn-größen-x"])
def test_a_token_that_is_short_or_has_other_characters_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings(http_token=token)
    assert token not in str(raised.value)


def test_the_token_in_a_file_is_asked_for_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with running_process(tmp_path, http_token_file=tmp_path / "token", http_host="0.0.0.0") as process:
        port = address_of(process).rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get(OVERVIEW).status_code == 401
            assert client.get(OVERVIEW, headers=bearer(TOKEN)).status_code == 200
            assert client.get("/health/ready").json() == {"status": "ready"}
        assert TOKEN not in process.log()
        assert TOKEN not in "\n".join(process.output())


def test_config_does_not_show_the_token() -> None:
    done = run_program("config", STOMPBROKER_HTTP_TOKEN=TOKEN, COLUMNS="200", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert "http_token" in done.stdout
    assert TOKEN not in done.stdout + done.stderr
    settings = Settings(http_token=TOKEN)
    assert TOKEN not in repr(settings)
    assert all(TOKEN not in repr(setting) for setting in effective(settings)), "which --json shows"


def test_a_broker_without_the_endpoint_listens_nowhere_else(tmp_path: Path) -> None:
    with running_process(tmp_path, http_enabled="false") as process:
        assert not [line for line in process.output() if "Watch it at" in line]
        assert process.wait_logged("broker is starting")["management"] is None


# The server -----------------------------------------------------------------------------------------------------------


def address_of(process: BrokerProcess) -> str:
    wait_until(lambda: any(line.startswith("Watch it at ") for line in process.output()), "its address")
    (line,) = [line for line in process.output() if line.startswith("Watch it at ")]
    return line.removeprefix("Watch it at ")


@contextmanager
def connected(process: BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = address_of(process).removeprefix("http://").rpartition(":")
    with socket.socket() as client:
        # Small, so that it is full soon.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect((host, int(port)))
        yield client


def test_who_does_not_read_and_what_nobody_reads_is_nobody_elses_concern(tmp_path: Path) -> None:
    with running_process(tmp_path) as process, httpx.Client(base_url=address_of(process), trust_env=False) as client:
        client.get("/health/live")
        # The answer comes from the store, so the body is there before it is given, and nobody reads it.
        before = open_files(process)
        for _ in range(10):
            with connected(process) as sender, suppress(OSError):
                sender.sendall(
                    b"GET /api/v1/topics/a/messages/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
                    + b"x" * 10_000_000
                )
        assert client.get("/health/live").status_code == 200
        wait_until(lambda: open_files(process) <= before, "the connections to be closed")

        with connected(process) as stuck, connected(process) as watching:
            watching.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert watching.recv(4096).startswith(b"HTTP/1.1 200")
            ask_without_reading(stuck)
            assert client.get(OVERVIEW).json()["broker"]["state"] == "running"
            process.stop()


def ask_without_reading(client: socket.socket) -> None:
    """More than the socket buffers of both ends take: then the server waits for us, and reads no more."""
    client.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            client.send(b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)


def open_files(process: BrokerProcess) -> int:
    return psutil.Process(process.process.pid).num_fds()
