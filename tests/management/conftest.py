"""One browser, and one broker to look at, for all tests of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.management.browser import page_address, running_browser, visiting
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.management.browser import Visit
    from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def watched_broker(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Not started where there is no browser."""
    with running_broker(tmp_path_factory.mktemp("watched")) as broker:
        yield broker


@pytest.fixture
def visit(browser: Browser, watched_broker: BrokerProcess) -> Iterator[Visit]:
    with visiting(browser, page_address(watched_broker)) as visit:
        yield visit
