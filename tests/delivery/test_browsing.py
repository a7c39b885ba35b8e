"""A browser goes on as there is room for it, and what it has not come to may go."""

from __future__ import annotations

from typing import Any, Final, final

import pytest

from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Browsing,
    Consumer,
    Credit,
    Durability,
    Registry,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    appending,
    collecting,
    parse_topic_name,
    queue_identity,
    sending,
)
from stompbroker.ids import Offset
from stompbroker.memory_budget import MemoryBudget
from stompbroker.message import Message, Origin
from tests.support.answers import acknowledge
from tests.support.messages import make_messages
from tests.support.sinks import ListSink

QUEUE: Final = parse_topic_name("/queue/jobs")
#: The most that is shown at once.
SLICE: Final = 512


def subscription(ack_mode: AckMode = AckMode.AUTO, **fields: Any) -> Subscription:
    return Subscription(name="s", destination=str(QUEUE), pattern=QUEUE, ack_mode=ack_mode, is_no_local=False, **fields)


def end_marker(is_cut_short: bool) -> Message:
    return Message(0, b"message-id:end\n\n\0", Origin("", is_plain=True), 0)


@final
class Scene:
    """A queue in memory, and a browser that has no room until the test makes some."""

    def __init__(self, count: int, *, size_bytes: int = 4, is_durable: bool = False) -> None:
        self.registry = Registry(
            TopicPolicies(TopicPolicy()), MemoryBudget(1 << 30), Totals(), max_topics=10, can_store=False
        )
        self.group = subscription(AckMode.INDIVIDUAL, is_shared=True)
        identity = queue_identity(QUEUE)
        if is_durable:
            self.group.durability = Durability(identity, 1, created_at_ns=0, last_seen_at_ns=0)
            self.registry.add_durable(self.group)
        else:
            self.registry.add_transient_group(self.group, identity)
        topic = self.registry.topic(QUEUE, 0)
        self.registry.begin(self.group, 0)
        appending.append(topic, make_messages(count, size_bytes=size_bytes), 0)
        self.topic = topic
        self.sink = ListSink(has_room=False)
        self.browser = self.attach(subscription(browser=Browsing(end_marker)), self.sink)

    def attach(self, to: Subscription, sink: ListSink) -> Consumer:
        credit = Credit(10_000, max_waiting=10_000)
        consumer = Consumer(to, ordinal=1, sink=sink, credit=credit, queue=self.registry.ready)
        self.registry.claim(consumer, 0)
        self.registry.open(consumer, 0)
        return consumer

    def deliver(self, slices: int = 1_000_000) -> None:
        while slices and len(self.registry.ready):
            sending.deliver_slice(self.registry.ready.take(), 0)
            slices -= 1
        self.registry.check_invariants()

    @property
    def shown(self) -> list[bytes]:
        """The ids of what the browser has got."""
        return [message.message_id for messages, _, _ in self.sink.delivered for message in messages]


def ids(count: int) -> list[bytes]:
    return [b"test-1-%d" % number for number in range(1, count + 1)]


def test_it_is_shown_a_slice_at_a_time_and_only_while_there_is_room() -> None:
    scene = Scene(3 * SLICE)
    scene.deliver()
    assert scene.shown == []

    scene.sink.make_room()
    scene.deliver(slices=1)
    assert scene.shown == ids(SLICE)
    scene.sink.take_room()
    scene.deliver()
    assert scene.shown == ids(SLICE)

    scene.sink.make_room()
    scene.deliver()
    assert scene.shown == [*ids(3 * SLICE), b"end"]
    assert not len(scene.registry.ready)


def test_a_slice_of_large_messages_is_bounded_by_their_bytes() -> None:
    scene = Scene(20, size_bytes=100_000)
    scene.sink.make_room()
    scene.sink.room_bytes = 200_000

    scene.deliver(slices=1)
    assert scene.shown == ids(2)
    scene.deliver()

    assert scene.shown == [*ids(20), b"end"]


@pytest.mark.parametrize("is_first_kept", [True, False])
def test_what_others_settle_is_stepped_over_whether_the_log_has_it_or_not(is_first_kept: bool) -> None:
    scene = Scene(3 * SLICE)
    scene.sink.make_room()
    scene.deliver(slices=1)
    scene.sink.take_room()
    worker = scene.attach(scene.group, ListSink())
    scene.deliver()
    acknowledge(worker, 1 + is_first_kept, 3 * SLICE)
    if not is_first_kept:
        collecting.collect(scene.topic, 0)
    assert (scene.topic.log.get(Offset(3 * SLICE - 1)) is not None) is is_first_kept

    scene.sink.make_room()
    scene.deliver()

    assert scene.shown == [*ids(SLICE), b"end"]


def test_it_waits_while_it_is_paused() -> None:
    scene = Scene(1)
    scene.browser.subscription.is_paused = True
    scene.sink.make_room()
    scene.deliver()
    assert scene.shown == []

    scene.browser.subscription.resume()
    scene.deliver()

    assert scene.shown == [*ids(1), b"end"]


def test_a_queue_that_ends_meanwhile_ends_the_browser() -> None:
    scene = Scene(SLICE + 1)
    scene.sink.make_room()
    scene.deliver(slices=1)
    scene.sink.take_room()
    worker = scene.attach(scene.group, ListSink())
    scene.deliver()
    acknowledge(worker, 1, SLICE + 1)
    scene.registry.leave([worker], 0)
    assert scene.registry.collect(scene.topic, 0, unused_since_ns=1)

    scene.sink.make_room()
    scene.deliver()

    assert scene.shown == [*ids(SLICE), b"end"]


def test_a_queue_that_an_operator_deletes_meanwhile_ends_the_browser() -> None:
    scene = Scene(SLICE + 1, is_durable=True)
    scene.sink.make_room()
    scene.deliver(slices=1)

    scene.registry.remove_durable(scene.group, 0)
    scene.deliver()

    assert scene.shown == [*ids(SLICE), b"end"]


def test_one_that_has_left_is_shown_nothing() -> None:
    scene = Scene(SLICE + 1)
    scene.sink.make_room()
    scene.deliver(slices=1)

    scene.registry.leave([scene.browser], 0)
    scene.deliver()

    assert scene.shown == ids(SLICE)
    assert list(scene.registry.subscriptions) == [scene.group]
