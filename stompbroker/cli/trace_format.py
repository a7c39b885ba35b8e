"""What has become of a message, as a person reads it.

Law: pure; from the broker's answer to lines, and to a table that Rich can print.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from stompbroker.cli.instants import moment, relative
from stompbroker.cli.uncut_table import Column, uncut_table
from stompbroker.config import bytes_as_text
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.table import Table

__all__ = ["place", "progress_table"]

_DEAD_LETTERS = "DLQ."


def place(found: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Where it lies: a title, and what is to be said about it besides."""
    topic, offset = visible(found["topic"].removeprefix(_DEAD_LETTERS)), found["offset"]
    if found["is_dead_letter"]:
        yield f"Dead letter {offset} of {topic}"
    else:
        yield f"Topic {visible(found['topic'])}, offset {offset}"
    expires = f", expires {relative(found['expires_at'], now)}" if found["expires_at"] else ""
    yield f"  published {moment(found['published_at'], now)}, {bytes_as_text(found['body_bytes'])}{expires}"
    if found["is_dead_letter"]:
        yield f"  stompbroker dead-letters show {topic} {offset}"
    if not found["subscriptions"]:
        yield "  no subscription has to do with it here"


def progress_table(subscriptions: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    """One row for each subscription, in the order given; there must be one."""
    columns = [
        Column("subscription"),
        Column("state", folds=True),
        Column("attempts", is_number=True),
        Column("first attempt"),
        Column("last attempt"),
        Column("next attempt"),
        Column("last reason", folds=True),
    ]
    rows = [
        [
            readable(one["subscription"]),
            one["state"] if one["connected"] else f"{one['state']} (not connected)",
            "" if one["attempts"] is None else f"{one['attempts']:,}",
            relative(one["first_attempt_at"], now),
            relative(one["last_attempt_at"], now),
            _due(one["next_attempt_at"], now),
            readable(one["reason"] or ""),
        ]
        for one in subscriptions
    ]
    return uncut_table(columns, rows)


def _due(instant: str | None, now: datetime) -> str:
    """What is overdue is about to happen."""
    return "now" if instant and datetime.fromisoformat(instant) <= now else relative(instant, now)
