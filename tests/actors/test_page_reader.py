"""Pages are read one at a time, in the order they were asked for, until they can be read."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from stompbroker.actors import page_reader
from stompbroker.ids import Offset
from tests.journal.journal_under_test import JournalUnderTest, until
from tests.support.messages import make_message
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stompbroker.delivery import Topic


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.actors.page_reader.RETRY_S", 0.01)


@asynccontextmanager
async def reading(under_test: JournalUnderTest) -> AsyncIterator[None]:
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                page_reader.run, under_test.registry.pages, under_test.store.as_store(), under_test.journal.health
            )
            yield
            nursery.cancel_scope.cancel()


@pytest.fixture
async def under_test(tmp_path: Path) -> AsyncIterator[JournalUnderTest]:
    """2,500 stored messages, of which nobody who is connected needs any: their window is empty."""
    under_test = JournalUnderTest(tmp_path)
    consumer, creation = under_test.creation("a")
    under_test.journal.submit(creation)
    under_test.write()
    under_test.registry.leave([consumer], under_test.clock.now_ns())
    messages = [make_message(b"%d" % number) for number in range(2500)]
    under_test.publish("all", under_test.topic("a"), messages)
    under_test.write()
    under_test.topic("a").window.trim()
    yield under_test
    under_test.check_invariants()
    under_test.store.close()


def ask(under_test: JournalUnderTest, topic: Topic, offset: int) -> None:
    under_test.registry.pages.read_ahead(topic, Offset(offset))


async def test_a_page_ends_where_all_of_them_do_and_holds_everything(under_test: JournalUnderTest) -> None:
    topic, pages = under_test.topic("a"), under_test.registry.pages
    assert topic.log.start_offset == 2500
    async with reading(under_test):
        ask(under_test, topic, 700)
        await until(lambda: pages.find(topic, Offset(700)))

    page = pages.find(topic, Offset(999))
    assert page is not None
    assert [message.body for _, message in page] == [b"%d" % number for number in range(700, 1000)]
    assert pages.find(topic, Offset(699)) is None
    assert pages.find(topic, Offset(1000)) is None
    assert under_test.budget.used_bytes >= pages.size_bytes > 0


async def test_pages_come_in_the_order_they_were_asked_for_and_each_is_read_once(under_test: JournalUnderTest) -> None:
    topic, pages = under_test.topic("a"), under_test.registry.pages
    for offset in (2000, 0, 1000, 0, 2000):
        ask(under_test, topic, offset)
    async with reading(under_test):
        await until(lambda: not pages.requests)

    assert under_test.store.pages_read == 3


async def test_a_page_of_a_topic_that_is_gone_is_given_up(under_test: JournalUnderTest) -> None:
    topic, pages = under_test.topic("a"), under_test.registry.pages
    ask(under_test, topic, 0)
    topic.is_removed = True
    async with reading(under_test):
        await until(lambda: not pages.requests)
    topic.is_removed = False

    assert under_test.store.pages_read == 0
    assert pages.find(topic, Offset(0)) is None


async def test_what_cannot_be_read_now_is_tried_again_and_said_once(under_test: JournalUnderTest) -> None:
    """The file is moved away, as by an operator's mistake, and moved back."""
    topic, pages = under_test.topic("a"), under_test.registry.pages
    store = under_test.store
    under_test.store.dispose_readers()
    file = under_test.data / "stompbroker.db"
    file.rename(file.with_name("moved"))
    with capture_logs() as logged:
        async with reading(under_test):
            ask(under_test, topic, 0)
            await until(lambda: store.pages_read >= 4)
            assert pages.find(topic, Offset(0)) is None
            file.with_name("moved").rename(file)
            await until(lambda: pages.find(topic, Offset(0)))

    assert [(entry["log_level"], entry["event"]) for entry in logged] == [
        ("error", "the store cannot be read; subscribers that are behind wait"),
        ("info", "the store can be read again"),
    ]
    assert "unable to open" in logged[0]["reason"]
