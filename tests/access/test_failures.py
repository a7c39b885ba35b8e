"""Wrong logins are counted by address, for a minute."""

from __future__ import annotations

import pytest

from stompbroker.access import failures as failures_module
from stompbroker.access.failures import WINDOW_NS, LoginFailures, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/run/broker.sock", "/run/broker.sock"),
        ("", ""),
    ],
)
def test_an_address_stands_for_what_one_person_has(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_limit_holds_for_a_minute_from_the_first_failure_on() -> None:
    failures = LoginFailures(2)

    failures.note("a", 0)
    assert not failures.are_too_many("a", 0)
    failures.note("a", WINDOW_NS // 2)

    assert failures.are_too_many("a", WINDOW_NS - 1)
    assert not failures.are_too_many("b", WINDOW_NS - 1)
    assert not failures.are_too_many("a", WINDOW_NS)
    failures.note("a", WINDOW_NS)
    assert failures.count("a", WINDOW_NS) == 1
    failures.check_invariants()


def test_a_flood_of_addresses_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures_module, "MAX_ADDRESSES", 3)
    failures = LoginFailures(1)

    for number in range(5):
        failures.note(str(number), number)
        failures.check_invariants()

    assert [failures.count(str(number), 5) for number in range(5)] == [0, 0, 1, 1, 1]
