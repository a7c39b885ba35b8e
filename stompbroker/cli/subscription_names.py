"""Which durable subscription a person means.

Law: pure. A key, as the broker gives it, means exactly one subscription.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["find", "near"]

Described = TypeVar("Described", bound="Mapping[str, Any]")

#: Keys suggested for one that is not there.
MAX_NEAR = 3


def find(subscriptions: Iterable[Described], key: str) -> Described | None:
    return next((one for one in subscriptions if one["key"] == key), None)


def near(subscriptions: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """Keys that may have been meant, the likeliest first."""
    return difflib.get_close_matches(key, [one["key"] for one in subscriptions], n=MAX_NEAR)
