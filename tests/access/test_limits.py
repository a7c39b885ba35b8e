"""Connections, subscriptions and messages of users and addresses."""

from __future__ import annotations

import pytest

from stompbroker.access import Grant, LimitReached, Limits, Permissions, Usage
from stompbroker.access import limits as limits_module
from stompbroker.clock import NANOSECONDS


def grant(user: str = "alice", **limits: int) -> Grant:
    return Grant(user=user, permissions=Permissions(), limits=Limits(**limits))


def is_empty(usage: Usage) -> bool:
    usage.check_invariants()
    return not usage._addresses and not usage._users


def test_an_address_has_as_many_connections_as_it_may() -> None:
    usage = Usage(max_address_connections=2)
    for address in ("a", "b", "a"):
        usage.connect(address)
    with pytest.raises(LimitReached, match=r"a has 2 connections, and an address may have 2 \(max_address_con"):
        usage.connect("a")

    usage.disconnect("a")
    usage.connect("a")
    usage.check_invariants()

    for address in ("a", "a", "b"):
        usage.disconnect(address)
    assert is_empty(usage)


def test_a_network_of_ipv6_is_one_address() -> None:
    usage = Usage(max_address_connections=1)

    usage.connect("2001:db8::1")
    with pytest.raises(LimitReached):
        usage.connect("2001:db8::2")


def test_a_user_has_as_many_connections_as_it_may() -> None:
    usage = Usage()
    usage.log_in(grant(connections=1))
    usage.log_in(grant("bob"))

    with pytest.raises(LimitReached, match="the user alice has 1 connections, and may have 1"):
        usage.log_in(grant(connections=1))

    usage.log_in(grant(connections=2))
    for user in ("alice", "alice", "bob"):
        usage.log_out(user)
    assert is_empty(usage)


def test_subscriptions_are_counted_over_all_connections_of_a_user() -> None:
    usage = Usage()
    for _ in range(2):
        usage.log_in(grant(subscriptions=2))
        usage.subscribe("alice")

    with pytest.raises(LimitReached, match="the user alice has 2 subscriptions on all connections, and may have 2"):
        usage.check_may_subscribe("alice")

    usage.unsubscribe("alice")
    usage.log_out("alice")
    usage.check_may_subscribe("alice")
    usage.unsubscribe("alice")
    usage.log_out("alice")
    assert is_empty(usage)


def test_new_limits_hold_for_what_comes_and_take_nothing_away() -> None:
    usage = Usage()
    usage.log_in(grant())
    usage.subscribe("alice")
    usage.subscribe("alice")

    usage.renew(grant(subscriptions=1))

    with pytest.raises(LimitReached):
        usage.check_may_subscribe("alice")


def test_without_limits_nobody_waits_and_nothing_is_kept() -> None:
    usage = Usage()
    usage.log_in(grant())

    assert usage.pause_s("alice", 1_000_000, 0) == 0.0
    assert usage._paid_at_ns == {}


def test_a_second_of_messages_may_come_at_once_and_more_has_to_wait() -> None:
    usage, now_ns = Usage(), 100 * NANOSECONDS
    usage.log_in(grant(messages_per_s=10))

    assert usage.pause_s("alice", 10, now_ns) == 0.0
    assert usage.pause_s("alice", 5, now_ns) == 0.5
    assert usage.pause_s("alice", 5, now_ns + NANOSECONDS // 2) == 0.5
    assert usage.pause_s("alice", 10, now_ns + 10 * NANOSECONDS) == 0.0


def test_over_a_long_time_the_rate_is_kept() -> None:
    usage, now_ns, sent = Usage(), 0, 0
    usage.log_in(grant(messages_per_s=1_000))

    while now_ns < 60 * NANOSECONDS:
        now_ns += int(usage.pause_s("alice", 300, now_ns) * NANOSECONDS)
        sent += 300

    assert 60_000 <= sent <= 61_500


def test_to_reconnect_pays_no_debts() -> None:
    usage = Usage()
    usage.log_in(grant(messages_per_s=10))
    usage.pause_s("alice", 100, 10 * NANOSECONDS)
    usage.log_out("alice")

    usage.log_in(grant(messages_per_s=10))

    assert usage.pause_s("alice", 0, 11 * NANOSECONDS) == 8.0


def test_debts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MAX_SENDERS", 3)
    usage = Usage()
    for number in range(9):
        usage.log_in(grant(str(number), messages_per_s=1))
        usage.pause_s(str(number), 5, 0)
        usage.check_invariants()
