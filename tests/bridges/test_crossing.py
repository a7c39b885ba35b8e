"""What a crossing settles, what it forgets, and what the headers of a message become; without brokers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stompbroker.bridges import BridgePlan, Crossing, CrossingState, Direction, RemoteKind, Verdict, in_short, onward
from stompbroker.bridges.crossing import MAX_REASON

PLAN = BridgePlan(
    name="there", urls=("stomp://x:1",), kind=RemoteKind.STOMPBROKER, send=("/topic/a",), client_id="b", prefetch=10
)


@dataclass(frozen=True)
class Named:
    """As much of a client's message as is needed."""

    name: str
    destination: str = "/queue/jobs"


def crossing() -> Crossing:
    made = Crossing(PLAN, Direction.SEND)
    made.connected(1)
    return made


def test_a_run_is_settled_by_its_last_message_once_all_before_it_are_confirmed() -> None:
    flow = crossing().flow("/topic/a")
    first, second, third = (flow.add(Named(name), 0.0, None) for name in "abc")

    flow.confirmed(second, {})
    assert flow.take_settled() == []
    flow.confirmed(first, {})

    assert [(said.message.name, said.verdict) for said in flow.take_settled()] == [("b", Verdict.ACK)]
    flow.confirmed(third, {})
    assert [said.message.name for said in flow.take_settled()] == ["c"]
    flow.check_invariants()


def test_messages_of_other_brokers_are_acknowledged_one_by_one() -> None:
    elsewhere = Crossing(replace(PLAN, kind=RemoteKind.RABBITMQ), Direction.RECEIVE)
    flow = elsewhere.flow("/topic/a")
    for passing in [flow.add(Named(name), 0.0, None) for name in "ab"]:
        flow.confirmed(passing, {})

    assert [(said.message.name, said.verdict) for said in flow.take_settled()] == [
        ("a", Verdict.ACK),
        ("b", Verdict.ACK),
    ]


def test_what_is_refused_is_named_between_the_runs() -> None:
    flow = crossing().flow("/topic/a")
    passing = [flow.add(Named(name), 0.0, None) for name in "abcd"]

    for each in (passing[0], passing[1], passing[3]):
        flow.confirmed(each, {})
    flow.refused(passing[2], "too large")

    said = [(each.message.name, each.verdict, each.reason) for each in flow.take_settled()]
    assert said == [("b", Verdict.ACK, ""), ("c", Verdict.NACK, "too large"), ("d", Verdict.ACK, "")]


@pytest.mark.parametrize(
    ("pattern", "receipt", "verdict", "counted"),
    [
        ("/topic/a", {}, Verdict.ACK, "sent"),
        ("/topic/a", {"duplicate": "true"}, Verdict.ACK, "duplicates"),
        ("/topic/a", {"circle": "true"}, Verdict.ACK, "circles"),
        # Nobody else has a queue's message: it is not dropped.
        ("/queue/a", {"circle": "true"}, Verdict.NACK, "refused"),
    ],
)
def test_every_receipt_counts_as_one_thing(
    pattern: str, receipt: dict[str, str], verdict: Verdict, counted: str
) -> None:
    made = crossing()
    flow = made.flow(pattern)

    flow.confirmed(flow.add(Named("a"), 0.0, None), receipt)

    assert [said.verdict for said in flow.take_settled()] == [verdict]
    counts = {name: getattr(made, name) for name in ("sent", "duplicates", "circles", "refused")}
    assert counts == dict.fromkeys(counts, 0) | {counted: 1}
    made.check_invariants()


def test_a_receipt_that_does_not_come_has_a_deadline() -> None:
    made = crossing()
    flow = made.flow("/topic/a")
    late = flow.add(Named("a"), 100.0, None)

    assert made.overdue(129.9) is None
    assert made.overdue(130.0) == "A receipt has not come for 30 seconds."
    flow.confirmed(late, {})
    flow.take_settled()
    assert made.overdue(130.0) is None


def test_receipts_that_come_slowly_one_after_the_other_are_in_time() -> None:
    made = crossing()
    flow = made.flow("/topic/a")
    passing = [flow.add(Named(name), 0.0, None) for name in "abc"]

    for each, now_s in zip(passing, (29.0, 58.0, 87.0), strict=True):
        assert made.overdue(now_s) is None
        flow.confirmed(each, {})
        flow.take_settled()
        assert made.overdue(now_s) is None
    flow.add(Named("d"), 100.0, None)
    assert made.overdue(129.9) is None
    assert made.overdue(130.0) is not None


def test_a_failure_forgets_what_was_on_its_way_and_is_shown_since_the_first() -> None:
    made = crossing()
    made.flow("/topic/a").add(Named("a"), 0.0, 5)
    assert (made.in_flight, made.oldest_published_ms) == (1, 5)

    made.failed("no connection", 10)
    made.failed("still none", 20)

    assert (made.in_flight, made.oldest_published_ms) == (0, None)
    assert (made.state, made.since_ns, made.problem, made.failures) == (CrossingState.RETRYING, 10, "still none", 2)


FROM_OURS = {
    "message-id": "s1-1-7",
    "subscription": "x",
    "ack": "1-1",
    "redelivered": "false",
    "delivery-count": "1",
    "destination": "a.b",
    "colour": "red",
    "bridge-offset": "s1/77/4",
    "bridge-published": "1000",
    "ttl": "5",
}


def passage(headers: dict[str, str], *, from_ours: bool = True, to_ours: bool = True) -> dict[str, str]:
    return onward(headers, pattern="/topic/a.*", from_ours=from_ours, to_ours=to_ours, now_ms=900).headers


def test_the_first_broker_is_named_as_the_producer() -> None:
    assert passage(FROM_OURS) == {
        "colour": "red",
        "origin-message-id": "s1-1-7",
        "bridge-path": "s1",
        "bridge-origin": "s1/77/4",
        "producer": "s1/77",
        "producer-epoch": "1",
        "producer-seq": "5",
    }


def test_the_next_broker_adds_itself_to_the_path_alone() -> None:
    arrived = FROM_OURS | {"bridge-path": "s0", "bridge-origin": "s0/3/9", "origin-message-id": "s0-1-1"}
    assert passage(arrived) == {
        "colour": "red",
        "origin-message-id": "s0-1-1",
        "bridge-path": "s0,s1",
        "bridge-origin": "s0/3/9",
        "producer": "s0/3",
        "producer-epoch": "1",
        "producer-seq": "10",
    }


def test_what_a_broker_returned_is_a_message_of_its_own() -> None:
    returned = FROM_OURS | {"bridge-path": "s0", "bridge-origin": "s0/3/9", "returned": "no-subscriber"}
    assert (passage(returned)["bridge-path"], passage(returned)["producer"]) == ("s1", "s1/77")


def test_a_destination_without_prefix_means_what_its_pattern_means() -> None:
    for pattern, meant in (("/topic/a.*", "/topic/a.b"), ("/queue/a.b", "/queue/a.b")):
        onwards = onward(FROM_OURS, pattern=pattern, from_ours=True, to_ours=True, now_ms=0)
        assert (onwards.destination, onwards.published_ms) == (meant, 1000)


def test_a_lifetime_becomes_an_end() -> None:
    assert passage(FROM_OURS | {"bridge-expires": "1500"})["expires"] == "1500"
    elsewhere = passage(FROM_OURS | {"bridge-expires": "1500"}, to_ours=False)
    assert (elsewhere["expires"], elsewhere["expiration"], elsewhere["persistent"]) == ("1500", "600", "true")
    assert passage({"expires": "0", "destination": "/topic/a"}, from_ours=False).get("expires") is None


def test_other_brokers_are_told_only_that_a_message_is_persistent() -> None:
    assert passage(FROM_OURS, to_ours=False)["persistent"] == "true"
    assert "persistent" not in passage(FROM_OURS | {"persistent": "false"}, to_ours=False)


def test_where_it_was_first_is_not_believed_from_other_brokers() -> None:
    forged = {"destination": "/topic/a", "message-id": "T_1", "bridge-path": "s1", "bridge-origin": "s1/77/4"}
    assert passage(forged, from_ours=False) == {"origin-message-id": "T_1", "bridge-path": "s1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expires", 5000 * "9"),
        ("expires", 17 * "9"),
        ("timestamp", 5000 * "9"),
        ("bridge-path", ""),
        ("bridge-path", "not a store"),
        ("bridge-path", ",".join(33 * ["s1"])),
        # It asks whoever publishes for reports, to anywhere.
        ("outcome-to", "/queue/secrets"),
    ],
)
def test_no_header_that_somebody_writes_at_another_broker_stops_a_bridge_or_tells_it_what_to_do(
    name: str, value: str
) -> None:
    said = {"destination": "/topic/a", "message-id": "T_1", name: value}
    onwards = onward(said, pattern="/topic/a", from_ours=False, to_ours=True, now_ms=0)
    assert onwards.published_ms is None
    # What has no meaning for a bridge is kept.
    assert {other for other in onwards.headers if other != "timestamp"} == {"origin-message-id"}


@pytest.mark.parametrize(("said", "kept"), [("1", None), ("true", None), ("false", "false")])
def test_other_brokers_say_otherwise_that_a_message_is_persistent(said: str, kept: str | None) -> None:
    assert passage({"destination": "/topic/a", "persistent": said}, from_ours=False).get("persistent") == kept


def test_a_message_without_its_offset_is_not_of_a_broker_of_ours() -> None:
    with pytest.raises(ValueError, match="is it a stompbroker"):
        passage({"destination": "/topic/a", "message-id": "1"})


def test_a_reason_is_shown_in_one_line() -> None:
    assert in_short("The broker refused: Bad CONNECT.\n  Access refused for user 'guest'\n") == (
        "The broker refused: Bad CONNECT; Access refused for user 'guest'"
    )
    assert in_short("No broker listens on h:1.") == "No broker listens on h:1."
    assert len(in_short("x" * 10_000)) == MAX_REASON
