"""The judge of the crash tests sees every kind of broken promise, and nothing where none was broken."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from soak.body import body_of, publication_in
from soak.history import AckConfirmed, Delivered, Publication, PublisherHistory, SubscriberHistory
from soak.kill_plan import KillPlan, Moment, PlannedKill, plan_kills
from soak.queue_run import Holdings
from soak.stomp_client import Misbehaved
from soak.verdict import Fault, Finding, Tally, findings, tally

if TYPE_CHECKING:
    from collections.abc import Callable


def publisher(number: int = 0, *, copies: list[int], receipted: set[int] | None = None) -> PublisherHistory:
    """Receipts for everything, unless told otherwise."""
    everything = set(range(1, len(copies) + 1))
    return PublisherHistory(publisher=number, copies=copies, receipted=everything if receipted is None else receipted)


def delivered(number: int, copy: int = 1, *, of: int = 0, message_id: str | None = None) -> Delivered:
    return Delivered(Publication(of, number, copy), message_id or f"id-{of}-{number}-{copy}")


def confirmed(number: int, copy: int = 1) -> AckConfirmed:
    return AckConfirmed(Publication(0, number, copy))


def subscriber(
    *events: Delivered | AckConfirmed, name: str = "s", publishers: frozenset[int] = frozenset({0})
) -> SubscriberHistory:
    return SubscriberHistory(subscriber=name, publishers=publishers, events=list(events))


def finding(fault: Fault, number: int, *, of: int = 0, name: str = "s") -> Finding:
    return Finding(fault=fault, subscriber=name, publisher=of, number=number)


# What is no fault ----------------------------------------------------------------------------------------------------


def test_everything_once_and_in_order_is_no_fault() -> None:
    history = subscriber(delivered(1), delivered(2), confirmed(1), delivered(3), confirmed(3), confirmed(2))

    assert findings([publisher(copies=[1, 1, 1])], [history]) == []


def test_what_has_no_receipt_may_come_or_not() -> None:
    histories = [subscriber(delivered(1), name="a"), subscriber(delivered(1), delivered(2), name="b")]

    assert findings([publisher(copies=[1, 1], receipted={1})], histories) == []


def test_a_delivery_may_come_again_and_behind_later_ones_until_its_ack_is_confirmed() -> None:
    history = subscriber(delivered(1), delivered(2), delivered(1), delivered(2), confirmed(1), delivered(2))

    assert findings([publisher(copies=[1, 1])], [history]) == []


def test_what_the_publisher_sent_again_is_another_message() -> None:
    """Its first copy was stored without a receipt; both copies come, the second after the first is done with."""
    history = subscriber(delivered(1), delivered(2), confirmed(1), delivered(1, 2), confirmed(2), delivered(2, 2))

    assert findings([publisher(copies=[2, 2])], [history]) == []


def test_publishers_may_be_interleaved() -> None:
    both = frozenset({0, 1})
    history = subscriber(
        delivered(1), delivered(1, of=1), delivered(2, of=1), delivered(2), delivered(3, of=1), publishers=both
    )

    assert findings([publisher(copies=[1, 1]), publisher(1, copies=[1, 1, 1])], [history]) == []


def test_a_subscriber_is_owed_only_what_it_has_subscribed_to() -> None:
    history = subscriber(delivered(1), publishers=frozenset({0}))

    assert findings([publisher(copies=[1]), publisher(1, copies=[1])], [history]) == []


# What is --------------------------------------------------------------------------------------------------------------


def test_a_message_with_a_receipt_that_never_came_is_lost_for_each_who_missed_it() -> None:
    histories = [
        subscriber(delivered(1), delivered(3), name="a"),
        subscriber(delivered(1), delivered(2), delivered(3), name="b"),
        subscriber(delivered(1), delivered(2), name="c"),
    ]

    found = findings([publisher(copies=[1, 1, 1])], histories)

    assert found == [finding(Fault.LOST, 2, name="a"), finding(Fault.LOST, 3, name="c")]


def test_any_copy_will_do() -> None:
    assert findings([publisher(copies=[2])], [subscriber(delivered(1, 2))]) == []


def test_a_first_delivery_behind_a_later_message_is_out_of_order() -> None:
    history = subscriber(delivered(1), delivered(3), delivered(2), delivered(4))

    assert findings([publisher(copies=[1, 1, 1, 1])], [history]) == [finding(Fault.DISORDERED, 2)]


def test_a_copy_that_comes_first_counts_as_the_first_delivery() -> None:
    history = subscriber(delivered(2, 2), delivered(1, 2), delivered(2))

    assert finding(Fault.DISORDERED, 1) in findings([publisher(copies=[2, 2])], [history])


def test_what_comes_after_the_receipt_for_its_ack_is_resurrected() -> None:
    history = subscriber(delivered(1), confirmed(1), delivered(2), delivered(1))

    assert findings([publisher(copies=[1, 1])], [history]) == [finding(Fault.RESURRECTED, 1)]


def test_one_send_under_two_ids_is_doubled_also_when_two_subscribers_disagree() -> None:
    twice = subscriber(delivered(1, message_id="x"), delivered(1, message_id="y"), name="a")
    other = subscriber(delivered(1, message_id="z"), name="b")

    found = findings([publisher(copies=[1])], [twice, other])

    assert found == [finding(Fault.DOUBLED, 1, name="a"), finding(Fault.DOUBLED, 1, name="b")]


def test_a_transaction_of_which_only_a_part_came_is_torn() -> None:
    history = publisher(copies=[1, 2, 2], receipted={1, 2, 3})
    history.transactions += [
        (Publication(0, 2, 1), Publication(0, 3, 1)),
        (Publication(0, 2, 2), Publication(0, 3, 2)),
    ]
    torn = subscriber(delivered(1), delivered(2), delivered(2, 2), delivered(3, 2), name="torn")
    whole = subscriber(delivered(1), delivered(2, 2), delivered(3, 2), name="whole")

    assert findings([history], [torn, whole]) == [finding(Fault.TORN, 2, name="torn")]


@pytest.mark.parametrize(
    "delivery",
    [delivered(2), delivered(1, 3), delivered(0), delivered(1, of=1)],
    ids=["number", "copy", "zero", "whose"],
)
def test_what_was_never_sent_is_invented(delivery: Delivered) -> None:
    found = findings([publisher(copies=[2])], [subscriber(delivered(1), delivery)])

    assert Fault.INVENTED in {each.fault for each in found}


def test_a_finding_says_what_is_wrong_in_a_sentence() -> None:
    assert str(finding(Fault.LOST, 7, of=2)) == (
        "LOST: message 7 of publisher 2 has a receipt and was never delivered (s)"
    )


def test_the_tally_tells_repeats_of_the_publisher_from_those_of_the_broker() -> None:
    history = subscriber(delivered(1), delivered(1), delivered(1, 2), confirmed(1), delivered(2))

    assert tally([publisher(copies=[2, 1])], [history]) == Tally(
        receipted=2, deliveries=4, confirmed_acks=1, sent_again=1, delivered_again=1
    )


# Groups ---------------------------------------------------------------------------------------------------------------


def held(*takes: tuple[str, int], life: int = 1, is_marked: bool = True) -> Holdings:
    """Messages that members were sent, in this order."""
    holdings = Holdings("s", frozenset({0}))
    for member, number in takes:
        holdings.take(member, Publication(0, number, 1), f"id-{number}", life=life, is_marked=is_marked)
    return holdings


def test_members_that_settle_each_message_once_make_no_fault_whatever_the_order() -> None:
    holdings = held(("a", 2), ("b", 1))
    holdings.let_go("b", [Publication(0, 1, 1)])
    holdings.take("a", Publication(0, 1, 1), "id-1", life=1, is_marked=True)
    for number in (1, 2):
        holdings.acknowledge(Publication(0, number, 1))
        holdings.confirm(Publication(0, number, 1))

    publishers = [publisher(copies=[1, 1])]
    assert findings(publishers, [holdings.history]) + holdings.findings(publishers) == []


def test_what_two_members_have_at_once_is_found() -> None:
    assert held(("a", 1), ("b", 1)).findings([]) == [finding(Fault.HELD_TWICE, 1)]


def test_what_overtakes_another_message_of_its_key_is_found() -> None:
    """Numbers 3 to 5 have one key, and 1 has none."""
    holdings = held(("a", 3), ("b", 1))
    holdings.take("b", Publication(0, 4, 1), "id-4", life=1, is_marked=False)
    holdings.acknowledge(Publication(0, 4, 1))
    holdings.take("b", Publication(0, 5, 1), "id-5", life=1, is_marked=False)

    assert holdings.findings([]) == [finding(Fault.OVERTOOK, 4)]


def test_what_comes_again_in_one_life_of_the_broker_has_to_be_marked() -> None:
    first, holdings = Publication(0, 1, 1), held(("a", 1), is_marked=False)
    holdings.let_go("a", [first])
    holdings.take("b", first, "id-1", life=2, is_marked=False)
    holdings.let_go("b", [first])
    holdings.take("a", first, "id-1", life=2, is_marked=False)

    assert holdings.findings([]) == [finding(Fault.UNMARKED, 1)]


def test_only_the_copy_with_the_receipt_settles_a_message_and_only_once() -> None:
    holdings = held()
    holdings.acknowledge(Publication(0, 1, 1))
    for _ in range(2):
        holdings.acknowledge(Publication(0, 2, 1))
        holdings.confirm(Publication(0, 2, 1))

    found = holdings.findings([publisher(copies=[2, 1])])

    assert found == [finding(Fault.SETTLED_TWICE, 2), finding(Fault.UNSETTLED, 1)]


# Bodies and plans -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 37, 499, 500])
def test_a_body_says_which_send_it_was(number: int) -> None:
    assert publication_in(body_of(Publication(3, number, 2))) == Publication(3, number, 2)


@pytest.mark.parametrize(
    "mutilate", [lambda body: body[:-1], lambda body: body + b"x", lambda body: b""], ids=["short", "long", "empty"]
)
def test_a_mutilated_body_is_noticed(mutilate: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Misbehaved):
        publication_in(mutilate(body_of(Publication(3, 37, 2))))


def test_a_kill_is_due_after_the_nth_event_of_its_kind_counted_from_its_place_in_the_run() -> None:
    plan = KillPlan([PlannedKill(receipts=10, moment=Moment.DELIVERED, nth=3)])

    assert not plan.note(Moment.DELIVERED, 100)
    assert not plan.note(Moment.RECEIPTED, 9)
    assert not plan.note(Moment.DELIVERED, 100)
    assert not plan.note(Moment.RECEIPTED, 1)
    assert not plan.note(Moment.DELIVERED, 2)
    assert not plan.note(Moment.ACKNOWLEDGED, 50)
    assert plan.note(Moment.DELIVERED, 1)
    assert plan.is_done
    assert not plan.note(Moment.DELIVERED, 1000)


def test_a_kill_that_is_due_while_nobody_can_be_killed_is_put_off() -> None:
    plan = KillPlan([PlannedKill(receipts=0, moment=Moment.SENT, nth=1)])

    plan.note(Moment.RECEIPTED, 1)

    assert not plan.note(Moment.SENT, 5, can_kill=False)
    assert not plan.is_done
    assert plan.note(Moment.ACKNOWLEDGED, 1)


def test_kills_are_spread_over_the_run_and_the_same_for_the_same_seed() -> None:
    plan = plan_kills(Random(7), kills=10, messages=1000)

    assert plan == plan_kills(Random(7), kills=10, messages=1000)
    assert plan != plan_kills(Random(8), kills=10, messages=1000)
    assert [kill.receipts // 100 for kill in plan] == list(range(10))
    assert len({kill.moment for kill in plan}) > 2
