"""stompjs, the independent client of browsers, in Node and in Chromium; `make test` installs it.

Law: nothing here knows how the broker works. What a client does and hears is in tests/support/stompjs/clients.js; here
it is told, and every wait is bounded there. Without Node, npm or a browser the tests are skipped, but fail in CI.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

import pytest

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import Browser, Page

_SCRIPTS: Final = Path(__file__).parents[1] / "support" / "stompjs"
_MODULES: Final = Path(__file__).parents[2] / ".peers" / "stompjs" / "node_modules"
_PAGE: Final = b'<!doctype html><title>A page</title><script src="stomp.js"></script><script src="clients.js"></script>'


class Message(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Place(Protocol):
    """Where clients run."""

    def tell(self, client: int, action: str, options: dict[str, Any]) -> Any: ...


@final
class StompJsClient:
    _numbers = count()

    def __init__(
        self,
        place: Place,
        url: str,
        *,
        beat_ms: int = 0,
        reconnect_ms: int = 0,
        is_binary: bool = False,
        subscriptions: Sequence[tuple[str, dict[str, str]]] = (),
        **headers: str,
    ) -> None:
        """Connects to nothing yet. `headers` are those of CONNECT; `subscriptions` are made after each CONNECTED."""
        self._place = place
        self._number = next(self._numbers)
        self._receipts = count(1)
        self._tell(
            "open",
            url=url,
            beat_ms=beat_ms,
            reconnect_ms=reconnect_ms,
            is_binary=is_binary,
            subscriptions=subscriptions,
            headers=headers,
        )

    def activate(self) -> None:
        self._tell("activate")

    def deactivate(self) -> None:
        """Say goodbye and stop connecting again."""
        self._tell("deactivate")

    def connect(self) -> None:
        self.activate()
        self.wait("connections", 1)

    def subscribe(self, destination: str, **headers: str) -> None:
        """Come back when the broker has confirmed it."""
        self._tell("subscribe", destination=destination, headers=_dashed(headers) | self._new_receipt())
        self._wait_receipts()

    def publish(self, destination: str, body: str | bytes, **headers: str) -> None:
        """Text is sent as stompjs sends text, bytes as a binary body; come back when the broker has confirmed it."""
        is_text = isinstance(body, str)
        self._tell(
            "publish",
            destination=destination,
            text=body if is_text else None,
            bytes=None if isinstance(body, str) else base64.b64encode(body).decode(),
            headers=_dashed(headers) | self._new_receipt(),
        )
        self._wait_receipts()

    def acknowledge(self, number: int) -> None:
        """The message of this place among all that have come."""
        self._tell("ack", number=number, headers=self._new_receipt())
        self._wait_receipts()

    def refuse(self, number: int) -> None:
        self._tell("nack", number=number, headers=self._new_receipt())
        self._wait_receipts()

    def wait(self, name: str, number: int) -> None:
        """Until there were that many `connections`, `messages`, `receipts`, `errors`, `closings`, `beats_sent` or
        `beats_received`."""
        self._tell("wait", name=name, number=number, timeout_ms=HARD_TIMEOUT_S * 1000)

    def wait_messages(self, number: int) -> list[Message]:
        self.wait("messages", number)
        return [Message(each["headers"], base64.b64decode(each["body"])) for each in self._tell("messages")]

    def state(self) -> Any:
        return self._tell("state")

    def _new_receipt(self) -> dict[str, str]:
        self._last_receipt = next(self._receipts)
        return {"receipt": str(self._last_receipt)}

    def _wait_receipts(self) -> None:
        self.wait("receipts", self._last_receipt)

    def _tell(self, action: str, **options: Any) -> Any:
        return self._place.tell(self._number, action, options)


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): text for name, text in headers.items()}


@contextmanager
def connected(place: Place, url: str, **options: Any) -> Iterator[StompJsClient]:
    """A client that has seen CONNECTED; it has said goodbye at the end of the block."""
    client = StompJsClient(place, url, **options)
    try:
        client.connect()
        yield client
    finally:
        client.deactivate()


# Where they run -------------------------------------------------------------------------------------------------------


def need_stompjs() -> None:
    """Without it the test is skipped on a laptop and fails in CI."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if not missing and (_MODULES / "@stomp").exists() and (_MODULES / "ws").exists():
        return
    reason = f"no stompjs: {' and '.join(missing)} is missing" if missing else "no stompjs: `make test` installs it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@final
class Node:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, client: int, action: str, options: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"client": client, "action": action, "options": options}) + "\n")
        self._process.stdin.flush()
        outcome = json.loads(self._process.stdout.readline())
        assert "error" not in outcome, outcome["error"]
        return outcome["result"]


@contextmanager
def running_node(authority: str) -> Iterator[Node]:
    """`authority`: the file of the authority that it trusts."""
    need_stompjs()
    environment = {**os.environ, "NODE_PATH": str(_MODULES), "NODE_EXTRA_CA_CERTS": authority}
    command = ["node", str(_SCRIPTS / "node.cjs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            yield Node(process)
        finally:
            process.kill()


@final
class Tab:
    """A page in Chromium."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def tell(self, client: int, action: str, options: dict[str, Any]) -> Any:
        return self.page.evaluate("told => tell(told)", {"client": client, "action": action, "options": options})


@contextmanager
def open_tab(browser: Browser, address: str) -> Iterator[Tab]:
    # The authority of the tests is nobody's.
    context = browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(HARD_TIMEOUT_S * 1000)
    try:
        page = context.new_page()
        page.goto(address)
        yield Tab(page)
    finally:
        context.close()


@contextmanager
def served_page() -> Iterator[int]:
    """The port on 127.0.0.1 of a page with stompjs on it."""
    need_stompjs()
    files = {
        "/": ("text/html", _PAGE),
        "/stomp.js": ("text/javascript", (_MODULES / "@stomp/stompjs/bundles/stomp.umd.js").read_bytes()),
        "/clients.js": ("text/javascript", (_SCRIPTS / "clients.js").read_bytes()),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, content = files.get(self.path, ("text/plain", b""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
