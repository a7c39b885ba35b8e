"""A topic that is gone leaves nothing in the store, whatever is still said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.changes import Answer, Unit, Verdict
from tests.journal.journal_under_test import JournalUnderTest, acknowledgement
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.delivery import Consumer


@pytest.fixture
async def under_test(data: Path) -> JournalUnderTest:
    """A journal whose batches the test writes itself."""
    return JournalUnderTest(data)


def with_a_topic_that_is_gone(under_test: JournalUnderTest) -> Consumer:
    """A durable subscriber of everything. What it got first, of `kept`, is not acknowledged; what it got second, of
    `gone`, is, and that topic has been removed since."""
    consumer, creation = under_test.creation(">")
    under_test.journal.submit(creation)
    for name in ("kept", "gone"):
        under_test.publish(name, under_test.topic(name), make_messages(1))
        under_test.write()
        under_test.deliver()
    under_test.submit("acknowledged", Unit([], [acknowledgement(consumer, 2, 2)]))
    under_test.write()
    under_test.write()  # with nothing else to do, what everybody has settled is deleted
    assert under_test.registry.collect(under_test.topic("gone"), 0, unused_since_ns=under_test.clock.now_ns() + 1)
    return consumer


def restarted(under_test: JournalUnderTest) -> JournalUnderTest:
    under_test.store.close()
    return JournalUnderTest(under_test.data)


async def test_it_goes_with_its_messages_and_cursors(under_test: JournalUnderTest) -> None:
    with_a_topic_that_is_gone(under_test)
    under_test.write()

    assert under_test.query("SELECT name FROM topics") == [("kept",)]
    assert len(under_test.query("SELECT * FROM cursors")) <= 1
    again = restarted(under_test)
    assert set(again.registry.topics) == {"kept"}
    again.store.close()


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("is_transaction", [True, False])
@pytest.mark.parametrize("is_written_between", [True, False])
async def test_a_late_answer_to_one_of_its_messages_does_not_keep_the_broker_from_starting(
    under_test: JournalUnderTest, verdict: Verdict, is_transaction: bool, is_written_between: bool
) -> None:
    consumer = with_a_topic_that_is_gone(under_test)
    if is_written_between:
        under_test.write()

    late = Answer(consumer, verdict, 2, 2)
    under_test.submit("late", Unit([], [late], is_transaction=is_transaction))
    under_test.write()

    again = restarted(under_test)
    assert set(again.registry.topics) == {"kept"}
    again.store.close()
