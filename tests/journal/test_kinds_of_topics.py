"""The queue and the topic of one name never meet: not in the registry, and not over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.delivery import DestinationKind, Pattern
from stompbroker.ids import Offset
from stompbroker.storage import Batch, MessageRun, open_store
from tests.journal.journal_under_test import JournalUnderTest
from tests.storage.place import cursor, subscription, topic
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = Pattern(("a",), DestinationKind.QUEUE)


async def test_both_are_there_after_a_restart_each_with_its_own_subscription(data: Path) -> None:
    store = open_store("", data)
    store.take_ownership("the process before")
    store.commit(
        Batch(
            number=1,
            topics=[topic(1, name="a", next_offset=3), topic(2, kind="queue", name="a", next_offset=5)],
            subscriptions=[
                subscription(1)._replace(pattern=">"),
                subscription(2)._replace(pattern="/queue/a", destination="/queue/a"),
            ],
            messages=[MessageRun(1, Offset(0), make_messages(3)), MessageRun(2, Offset(0), make_messages(5))],
            cursors=[cursor(1, 1, ack_floor=1, sent_up_to=1), cursor(2, 2, ack_floor=2, sent_up_to=2)],
        )
    )
    store.close()

    under_test = JournalUnderTest(data)

    registry = under_test.registry
    assert set(registry.topics) == {"a", "/queue/a"}
    floors = {
        (str(topic.destination), subscription.name): reading.cursor.ack_floor
        for topic in registry.topics.values()
        for subscription, reading in topic.readings.items()
    }
    assert floors == {("/topic/a", "name 1"): 1, ("/queue/a", "name 2"): 2}
    registry.check_invariants()
    under_test.store.close()


async def test_what_is_published_to_the_one_is_not_in_the_other(data: Path) -> None:
    under_test = JournalUnderTest(data)
    registry, now_ns = under_test.registry, under_test.clock.now_ns()
    _, creation = under_test.creation(">")
    under_test.journal.submit(creation)
    queue = registry.topic(QUEUE, now_ns)

    under_test.publish("to the topic", under_test.topic("a"), make_messages(2))
    under_test.publish("to the queue", queue, make_messages(1))
    under_test.write()

    assert registry.topic(QUEUE, now_ns) is queue is not under_test.topic("a")
    assert (under_test.topic("a").published, queue.published) == (2, 1)
    assert not queue.readings
    assert under_test.query("SELECT kind, name, next_offset FROM topics") == [("topic", "a", 2)]
    under_test.store.close()
