"""What durable subscriptions are called: one name each, whatever clients choose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.cli.subscription_names import find, near, shown_name
from tests.cli.scripted_control import addressed, named

ODD_TEXT = st.text(alphabet="ab/ @%-\n\x1b2FD\u00a0", max_size=6)
SUBSCRIPTIONS = st.builds(named, ODD_TEXT, ODD_TEXT) | st.builds(addressed, ODD_TEXT, ODD_TEXT)


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (named("billing", "invoices"), "billing/invoices"),
        (named("billing", "a@b:é"), "billing/a@b:é"),
        (named("a/b", "c"), "a%2Fb/c"),
        (named("a", "b/c"), "a/b%2Fc"),
        (named("", "c"), "/c"),
        (named("", "c") | {"client_id": None}, "/c"),
        (named("-y", "c"), "%2Dy/c"),
        (named("a", "100%"), "a/100%25"),
        (named("a", "\x1b[2J"), "a/%1B[2J"),
        (addressed("audit", "/topic/orders.>"), "audit @ /topic/orders.>"),
        (addressed("x @ y", "z"), "x%20@%20y @ z"),
    ],
)
def test_a_name_is_what_the_client_chose_as_far_as_it_can_be_copied(one: dict[str, Any], name: str) -> None:
    assert shown_name(one) == name


@given(SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_two_subscriptions_never_have_the_same_name(first: dict[str, Any], second: dict[str, Any]) -> None:
    def identity(one: dict[str, Any]) -> tuple[object, ...]:
        is_named = one["kind"] == "named"
        return one["kind"], one["client_id"] if is_named else one["destination"], one["name"]

    assert (shown_name(first) == shown_name(second)) == (identity(first) == identity(second))


@given(SUBSCRIPTIONS)
def test_a_name_is_printable_has_single_blanks_and_is_no_option(one: dict[str, Any]) -> None:
    name = shown_name(one)

    assert name.isprintable()
    assert not name.startswith("-")
    assert " ".join(name.split(" ")) == name


def test_both_the_name_and_the_key_find_it() -> None:
    odd, plain = named("a/b", "c"), named("d", "e")

    assert find([odd, plain], "a%2Fb/c") == [odd]
    assert find([odd, plain], "a/b/c") == [odd]
    assert find([odd, plain], "d/e") == [plain]
    assert find([odd, plain], "d") == []


def test_near_names_come_likeliest_first_and_are_few() -> None:
    known = [named("billing", f"invoice{number}") for number in range(20)] + [named("x", "y")]

    assert near(known, "billing/invoice7x")[0] == "billing/invoice7"
    assert len(near(known, "billing/invoice")) == 3
    assert near(known, "zzz") == []
