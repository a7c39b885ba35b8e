"""A person with a browser in front of the broker's page.

Law: knows how Chromium is found and started, and what must never happen on the page, whatever a test does with it: an
error on the console, or a request to somewhere else. Nothing here knows what the page shows.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.broker_process import wait_until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

    from tests.support.broker_process import BrokerProcess

#: Width and height in pixels.
DESKTOP: Final = (1280, 900)
PHONE: Final = (390, 844)

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_ANNOUNCED: Final = "Watch it at "


def installed_chromium() -> str:
    """Where it is. Without it the test is skipped on a laptop and fails in CI."""
    for name in _NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    reason = f"no browser: none of {', '.join(_NAMES)} is installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def running_browser() -> Iterator[Browser]:
    chromium = installed_chromium()
    expect.set_options(timeout=HARD_TIMEOUT_S * 1000)
    with sync_playwright() as playwright:
        # Its sandbox does not work for root, and our own page is all it opens.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def page_address(broker: BrokerProcess) -> str:
    """Where the broker says that it can be watched."""

    def announced() -> list[str]:
        return [line.removeprefix(_ANNOUNCED) for line in broker.output() if line.startswith(_ANNOUNCED)]

    wait_until(announced, f"a line that begins with {_ANNOUNCED!r}")
    return announced()[0]


@final
@dataclass
class Visit:
    """One page that is open, and what has happened on it."""

    page: Page
    address: str
    #: Parts of errors that this test provokes.
    provoked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, view: str = "/") -> None:
        self.page.goto(f"{self.address}/#{view}")

    def note_error(self, error: object) -> None:
        self.errors.append(str(error))

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def note_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def check(self) -> None:
        """Nothing went wrong that the test did not provoke, and nobody else was asked for anything."""
        unexpected = [error for error in self.errors if not any(part in error for part in self.provoked)]
        assert not unexpected, unexpected
        here = urlsplit(self.address).netloc
        elsewhere = [url for url in self.requests if urlsplit(url).netloc not in (here, "")]
        assert not elsewhere, elsewhere


@contextmanager
def visiting(
    browser: Browser, address: str, *, size: tuple[int, int] = DESKTOP, is_dark: bool = False
) -> Iterator[Visit]:
    """A page in a window of its own, with nothing kept from another one; closed and checked at the end."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if is_dark else "light"
    )
    context.set_default_timeout(HARD_TIMEOUT_S * 1000)
    visit = Visit(context.new_page(), address)
    visit.page.on("console", visit.note_console)
    visit.page.on("pageerror", visit.note_error)
    visit.page.on("request", visit.note_request)
    try:
        yield visit
        visit.check()
    finally:
        context.close()
