"""What a durable subscription is called on the command line.

Law: pure. A name stands for exactly one subscription, and can be copied whatever a client has put into it:
`CLIENT-ID/NAME`, or `NAME @ DESTINATION` for one without a client id. The "/" of the one and the blanks of the other
occur nowhere else in it: what would be mistaken for them or for an option, or cannot be seen, is written as %XX.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["displayed", "find", "named", "near", "shown_name"]

Described = TypeVar("Described", bound="Mapping[str, Any]")

#: Names suggested for one that is not there.
MAX_NEAR = 3


def shown_name(one: Mapping[str, Any]) -> str:
    """The name of a subscription as the broker describes it."""
    if one["kind"] == "named":
        return named(one["client_id"] or "", one["name"])
    return _no_option(f"{displayed(one['name'])} @ {displayed(one['destination'])}")


def named(client_id: str, name: str) -> str:
    return _no_option(f"{displayed(client_id, also='/')}/{displayed(name, also='/')}")


def displayed(text: str, *, also: str = "") -> str:
    """The text without blanks and what moves the cursor; different texts stay different."""
    return "".join(
        quote(sign, safe="") if sign in f"%{also}" or sign.isspace() or not sign.isprintable() else sign
        for sign in text
    )


def _no_option(name: str) -> str:
    return f"%2D{name[1:]}" if name.startswith("-") else name


def find(subscriptions: Iterable[Described], name: str) -> list[Described]:
    """Those that can be meant by a name, or by the broker's `key` that --json shows: one, none, in odd cases more."""
    return [one for one in subscriptions if name in (shown_name(one), one["key"])]


def near(subscriptions: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Names that may have been meant, the likeliest first."""
    return difflib.get_close_matches(name, [shown_name(one) for one in subscriptions], n=MAX_NEAR)
