"""What durable subscriptions are called: one name each, whatever clients choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.delivery import Identity, IdentityKind

ODD_TEXT = st.text(alphabet="ab/ @%-\n\x1b2FD\u00a0", max_size=6)
OWNED = st.sampled_from([IdentityKind.NAMED, IdentityKind.ADDRESSED])
IDENTITIES = (
    st.builds(Identity, st.just("") | ODD_TEXT, OWNED, ODD_TEXT, ODD_TEXT | ODD_TEXT.map("group:{}".format))
    | st.builds(Identity, st.just(""), st.just(IdentityKind.GROUP), ODD_TEXT, ODD_TEXT)
    | st.builds(Identity, st.just(""), st.just(IdentityKind.QUEUE), st.just(""), ODD_TEXT)
)


def named(client_id: str, name: str) -> Identity:
    return Identity("", IdentityKind.NAMED, client_id, name)


def addressed(pattern: str, name: str) -> Identity:
    return Identity("", IdentityKind.ADDRESSED, pattern, name)


@pytest.mark.parametrize(
    ("identity", "key"),
    [
        (named("billing", "invoices"), "billing/invoices"),
        (named("billing", "a@b:é"), "billing/a@b:é"),
        (named("a/b", "c"), "a%2Fb/c"),
        (named("a", "b/c"), "a/b%2Fc"),
        (named("", "c"), "/c"),
        (named("-y", "c"), "%2Dy/c"),
        (named("a", "100%"), "a/100%25"),
        (named("a", "\x1b[2J"), "a/%1B[2J"),
        (addressed("orders.>", "audit"), "audit @ orders.>"),
        (addressed("z", "x @ y"), "x%20@%20y @ z"),
        (addressed("z", "group:x"), "%67roup:x @ z"),
        (Identity("", IdentityKind.GROUP, "orders.>", "x"), "group:x @ orders.>"),
        (Identity("", IdentityKind.QUEUE, "", "jobs.a"), "/queue/jobs.a"),
    ],
)
def test_a_key_is_what_the_client_chose_as_far_as_it_can_be_copied(identity: Identity, key: str) -> None:
    assert identity.key == key


@given(IDENTITIES, IDENTITIES)
def test_two_identities_never_have_the_same_key(first: Identity, second: Identity) -> None:
    assert (first.key == second.key) == (first == second)


@given(IDENTITIES)
def test_a_key_is_printable_has_single_blanks_and_is_no_option(identity: Identity) -> None:
    assert identity.key.isprintable()
    assert not identity.key.startswith("-")
    assert " ".join(identity.key.split(" ")) == identity.key
