"""What a subscriber says about failures, in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.config import Settings
from stompbroker.delivery import DeliveryPolicy, DeliveryWishes, Refusal, WhenUsedUp
from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import read_ordering, read_refusal, read_wishes

DAY_MS = 86_400_000
MS_NS = 1_000_000
NOW_NS = 1_700_000_000 * 1_000_000_000

OWN = [
    "redelivery-delay",
    "redelivery-multiplier",
    "redelivery-max-delay",
    "redelivery-jitter",
    "max-attempts",
    "ack-deadline",
    "when-used-up",
]
ACTIVEMQ = [
    "maximumRedeliveries",
    "initialRedeliveryDelay",
    "redeliveryDelay",
    "backOffMultiplier",
    "useExponentialBackOff",
    "maximumRedeliveryDelay",
]


def parsed(text: str) -> dict[str, str]:
    """Headers from `a:1 b:2`."""
    return dict(header.split(":", 1) for header in text.split())


def wishes(text: str) -> dict[str, Any]:
    return dict(read_wishes(parsed(text)).changed)


def refusal_of(text: str) -> PeerViolation:
    with pytest.raises(PeerViolation) as raised:
        read_wishes(parsed(text))
    return raised.value


def test_who_wishes_nothing_gets_the_topics_policy() -> None:
    policy = DeliveryPolicy(first_delay_ms=7)

    assert read_wishes({"destination": "/topic/a", "id": "0"}).laid_over(policy) is policy


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        ("redelivery-delay:0", "first_delay_ms", 0),
        (f"redelivery-delay:{DAY_MS}", "first_delay_ms", DAY_MS),
        ("redelivery-multiplier:1", "multiplier", 1.0),
        ("redelivery-multiplier:1.5", "multiplier", 1.5),
        ("redelivery-multiplier:100.0", "multiplier", 100.0),
        ("redelivery-max-delay:0", "max_delay_ms", 0),
        (f"redelivery-max-delay:{7 * DAY_MS}", "max_delay_ms", 7 * DAY_MS),
        ("redelivery-jitter:0", "jitter", 0.0),
        ("redelivery-jitter:0.25", "jitter", 0.25),
        ("redelivery-jitter:1", "jitter", 1.0),
        ("max-attempts:0", "max_attempts", 0),
        ("max-attempts:1000000", "max_attempts", 1_000_000),
        ("ack-deadline:0", "ack_deadline_ms", 0),
        ("ack-deadline:100", "ack_deadline_ms", 100),
        (f"ack-deadline:{DAY_MS}", "ack_deadline_ms", DAY_MS),
        ("when-used-up:dead-letter", "when_used_up", WhenUsedUp.DEAD_LETTER),
        ("when-used-up:discard", "when_used_up", WhenUsedUp.DISCARD),
        ("when-used-up:evict", "when_used_up", WhenUsedUp.EVICT),
    ],
)
def test_an_own_header_changes_its_field_alone(header: str, field: str, value: object) -> None:
    assert wishes(header) == {field: value}


@pytest.mark.parametrize("prefix", ["", "activemq."])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("maximumRedeliveries:6", {"max_attempts": 7}),
        ("maximumRedeliveries:0", {"max_attempts": 1}),
        ("maximumRedeliveries:-1", {"max_attempts": 0}),
        ("maximumRedeliveries:999999", {"max_attempts": 1_000_000}),
        ("initialRedeliveryDelay:500", {"first_delay_ms": 500}),
        ("initialRedeliveryDelay:0", {"first_delay_ms": 0}),
        ("redeliveryDelay:600", {"first_delay_ms": 600}),
        ("redeliveryDelay:600 initialRedeliveryDelay:500", {"first_delay_ms": 500}),
        ("redeliveryDelay:0 initialRedeliveryDelay:500", {"first_delay_ms": 500}),
        ("redeliveryDelay:600 initialRedeliveryDelay:0", {"first_delay_ms": 600}),
        ("backOffMultiplier:5", {"multiplier": 5.0}),
        ("backOffMultiplier:5 useExponentialBackOff:true", {"multiplier": 5.0}),
        ("backOffMultiplier:5 useExponentialBackOff:false", {"multiplier": 1.0}),
        ("useExponentialBackOff:false", {"multiplier": 1.0}),
        ("useExponentialBackOff:true", {}),
        ("maximumRedeliveryDelay:9000", {"max_delay_ms": 9000}),
        ("maximumRedeliveryDelay:-1", {"max_delay_ms": 7 * DAY_MS}),
    ],
)
def test_activemqs_headers_mean_what_they_mean_there(prefix: str, headers: str, expected: dict[str, Any]) -> None:
    assert wishes(" ".join(prefix + header for header in headers.split())) == expected


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("redelivery-delay:-1", "a whole number of milliseconds from 0 to 86400000"),
        ("redelivery-delay:86400001", "a whole number of milliseconds from 0 to 86400000"),
        ("redelivery-delay:1s", "a whole number of milliseconds from 0 to 86400000"),
        ("redelivery-delay:", "a whole number of milliseconds from 0 to 86400000"),
        ("redelivery-multiplier:0.9", "a decimal number from 1 to 100"),
        ("redelivery-multiplier:100.1", "a decimal number from 1 to 100"),
        ("redelivery-multiplier:nan", "a decimal number from 1 to 100"),
        ("redelivery-multiplier:inf", "a decimal number from 1 to 100"),
        ("redelivery-multiplier:1e1", "a decimal number from 1 to 100"),
        ("redelivery-multiplier:2,5", "a decimal number from 1 to 100"),
        ("redelivery-max-delay:604800001", "a whole number of milliseconds from 0 to 604800000"),
        ("redelivery-jitter:1.01", "a decimal number from 0 to 1"),
        ("redelivery-jitter:-0.1", "a decimal number from 0 to 1"),
        ("max-attempts:1000001", "a whole number from 0 to 1000000"),
        ("max-attempts:-1", "a whole number from 0 to 1000000"),
        ("ack-deadline:99", "0 for none, nor a whole number of milliseconds from 100 to 86400000"),
        ("ack-deadline:86400001", "0 for none, nor a whole number of milliseconds from 100 to 86400000"),
        ("when-used-up:drop", "one of dead-letter, discard, evict"),
        ("maximumRedeliveries:1000000", "a whole number from -1 to 999999"),
        ("activemq.maximumRedeliveries:-2", "a whole number from -1 to 999999"),
        ("initialRedeliveryDelay:-1", "a whole number of milliseconds from 0 to 86400000"),
        ("activemq.redeliveryDelay:86400001", "a whole number of milliseconds from 0 to 86400000"),
        ("activemq.backOffMultiplier:0", "a decimal number from 1 to 100"),
        ("useExponentialBackOff:yes", "not true or false"),
        ("maximumRedeliveryDelay:-2", "a whole number of milliseconds from -1 to 604800000"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(header: str, allowed: str) -> None:
    name, value = header.split(":")

    error = refusal_of(header)

    assert repr(name) in error.summary
    assert repr(value) in error.detail
    assert allowed in error.detail


@pytest.mark.parametrize(
    "headers", ["redeliveryDelay:x initialRedeliveryDelay:5", "initialRedeliveryDelay:5 redeliveryDelay:x"]
)
def test_a_wrong_value_is_refused_also_where_it_would_not_count(headers: str) -> None:
    assert "'redeliveryDelay'" in refusal_of(headers).summary


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("max-attempts:7 maximumRedeliveries:6 activemq.maximumRedeliveries:6", {"max_attempts": 7}),
        ("max-attempts:0 maximumRedeliveries:-1", {"max_attempts": 0}),
        ("redelivery-delay:500 initialRedeliveryDelay:500 redeliveryDelay:9", {"first_delay_ms": 500}),
        ("redelivery-multiplier:1 useExponentialBackOff:false backOffMultiplier:3", {"multiplier": 1.0}),
        ("redelivery-multiplier:2 backOffMultiplier:2.0", {"multiplier": 2.0}),
        ("redelivery-max-delay:604800000 maximumRedeliveryDelay:-1", {"max_delay_ms": 7 * DAY_MS}),
    ],
)
def test_several_names_may_say_the_same(headers: str, expected: dict[str, Any]) -> None:
    assert wishes(headers) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("max-attempts:6", "maximumRedeliveries:6"),
        ("redelivery-delay:1", "redeliveryDelay:2"),
        ("redelivery-delay:1", "activemq.initialRedeliveryDelay:2"),
        ("redelivery-multiplier:2", "backOffMultiplier:3"),
        ("redelivery-multiplier:2", "useExponentialBackOff:false"),
        ("redelivery-max-delay:2", "maximumRedeliveryDelay:-1"),
        *((f"activemq.{name}:1", f"{name}:2") for name in ACTIVEMQ if name != "useExponentialBackOff"),
        ("activemq.useExponentialBackOff:true", "useExponentialBackOff:false"),
    ],
)
def test_two_names_that_say_different_things_are_both_named(first: str, second: str) -> None:
    for headers in (f"{first} {second}", f"{second} {first}"):
        error = refusal_of(headers)

        assert error.summary == "contradicting headers"
        assert f"{first} and {second} " in error.detail
        assert "give one of them" in error.detail


@pytest.mark.parametrize("first", ["redelivery-delay:1001", "activemq.redeliveryDelay:1001"])
@pytest.mark.parametrize("longest", ["redelivery-max-delay:1000", "maximumRedeliveryDelay:1000"])
def test_a_first_delay_above_the_longest_is_refused_with_both_names(first: str, longest: str) -> None:
    error = refusal_of(f"{first} {longest}")

    assert f"{first} is more than {longest}" in error.detail
    assert "lower the one or raise the other" in error.detail


def test_a_first_delay_as_long_as_the_longest_is_fine() -> None:
    assert wishes("redelivery-delay:5 redelivery-max-delay:5") == {"first_delay_ms": 5, "max_delay_ms": 5}


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("redelivery-delay", "redelivery_first_delay_ms"),
        ("redelivery-multiplier", "redelivery_multiplier"),
        ("redelivery-max-delay", "redelivery_max_delay_ms"),
        ("redelivery-jitter", "redelivery_jitter"),
        ("max-attempts", "max_attempts"),
        ("ack-deadline", "ack_deadline_ms"),
    ],
)
def test_a_subscriber_may_ask_for_what_an_operator_may_set(header: str, key: str) -> None:
    metadata = Settings.model_fields[key].metadata
    low = next(item.ge for item in metadata if hasattr(item, "ge"))
    high = next(item.le for item in metadata if hasattr(item, "le"))

    assert list(wishes(f"{header}:{low}").values()) == [low]
    assert list(wishes(f"{header}:{high}").values()) == [high]
    refusal_of(f"{header}:{low - 1}")
    refusal_of(f"{header}:{high + 1}")


ANY_HEADERS = st.dictionaries(
    st.sampled_from([*OWN, *ACTIVEMQ, *(f"activemq.{name}" for name in ACTIVEMQ)]),
    st.one_of(
        st.integers(-2, 100).map(str),
        st.sampled_from(["true", "false", "0.5", "1.5", "discard", "evict", "86400000"]),
        st.text(max_size=5),
    ),
    max_size=5,
)


@given(ANY_HEADERS)
def test_any_headers_are_taken_or_refused_and_what_is_taken_can_be_kept(headers: dict[str, str]) -> None:
    try:
        taken = read_wishes(headers)
    except PeerViolation:
        return
    assert taken.laid_over(DeliveryPolicy()).delay_ns(failures=100, seed=1) >= 0
    assert DeliveryWishes.from_plain(json.loads(json.dumps(taken.as_plain()))) == taken


# NACK


def test_a_bare_nack_says_nothing() -> None:
    assert read_refusal({"id": "1"}, NOW_NS) == Refusal(NOW_NS, "", None, is_final=False)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"delay": "0"}, Refusal(NOW_NS, "", 0, is_final=False)),
        ({"delay": "1500"}, Refusal(NOW_NS, "", 1500 * MS_NS, is_final=False)),
        ({"delay": str(7 * DAY_MS)}, Refusal(NOW_NS, "", 7 * DAY_MS * MS_NS, is_final=False)),
        ({"reason": "no such order"}, Refusal(NOW_NS, "no such order", None, is_final=False)),
        ({"reason": "x" * 250}, Refusal(NOW_NS, "x" * 250, None, is_final=False)),
        ({"reason": "x" * 251}, Refusal(NOW_NS, "x" * 249 + "…", None, is_final=False)),
        ({"requeue": "true"}, Refusal(NOW_NS, "", None, is_final=False)),
        ({"requeue": "false"}, Refusal(NOW_NS, "", None, is_final=True)),
    ],
)
def test_a_nack_may_say_when_why_and_whether_at_all(headers: dict[str, str], expected: Refusal) -> None:
    assert read_refusal(headers, NOW_NS) == expected


@pytest.mark.parametrize(
    ("header", "value", "allowed"),
    [
        ("delay", "-1", "a whole number of milliseconds from 0 to 604800000"),
        ("delay", "604800001", "a whole number of milliseconds from 0 to 604800000"),
        ("delay", "5s", "a whole number of milliseconds from 0 to 604800000"),
        ("requeue", "no", "not true or false"),
        ("reason", "a\0b", "NUL"),
        ("reason", "x" * 300 + "\0", "NUL"),
    ],
)
def test_a_wrong_value_in_a_nack_is_named_with_what_is_allowed(header: str, value: str, allowed: str) -> None:
    with pytest.raises(PeerViolation) as raised:
        read_refusal({header: value}, NOW_NS)

    assert repr(header) in raised.value.summary
    assert allowed in raised.value.detail


# Ordering


@pytest.mark.parametrize(
    ("headers", "is_strict"), [({}, False), ({"ordering": "none"}, False), ({"ordering": "strict"}, True)]
)
def test_ordering_is_strict_or_none(headers: dict[str, str], is_strict: bool) -> None:
    assert read_ordering(headers) is is_strict


@pytest.mark.parametrize("value", ["", "Strict", "true", "fifo"])
def test_any_other_ordering_is_named_with_what_is_allowed(value: str) -> None:
    with pytest.raises(PeerViolation) as raised:
        read_ordering({"ordering": value})

    assert "'ordering'" in raised.value.summary
    assert f"{value!r} is not one of strict, none" in raised.value.detail
