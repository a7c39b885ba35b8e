"""Which durable subscription a person means."""

from __future__ import annotations

from stompbroker.cli.subscription_names import find, near
from tests.cli.scripted_control import named


def test_the_key_finds_it() -> None:
    odd, plain = named("a/b", "c"), named("d", "e")

    assert find([odd, plain], "a%2Fb/c") == odd
    assert find([odd, plain], "d/e") == plain
    assert find([odd, plain], "d") is None


def test_near_names_come_likeliest_first_and_are_few() -> None:
    known = [named("billing", f"invoice{number}") for number in range(20)] + [named("x", "y")]

    assert near(known, "billing/invoice7x")[0] == "billing/invoice7"
    assert len(near(known, "billing/invoice")) == 3
    assert near(known, "zzz") == []
