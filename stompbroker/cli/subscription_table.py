"""Durable subscriptions as a table for a person.

Law: from the broker's answer to something Rich can print, and then printed. A name is neither cut nor wrapped: it is
there to be copied.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table

from stompbroker.cli.instants import duration
from stompbroker.cli.terminal import shown
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.console import Console

__all__ = ["print_uncut", "table_of"]

#: Wider than any row: the longest names are a few hundred signs.
MAX_WIDTH = 1_000_000

#: What is left, in signs, of a column that folds when there is no room; and what is between two columns.
FOLDED_WIDTH, COLUMN_GAP = 12, 2

_FOLDING = {"destination", "ack", "state"}


def table_of(subscriptions: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    """One row each, in the order given; there must be one."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "name": lambda one: str(one["key"]),
        "destination": lambda one: visible(one["destination"]),
        "ack": lambda one: str(one["ack"]).removeprefix("client-"),
        "state": lambda one: _state(one, now),
        "backlog": lambda one: f"{one['backlog']:,}",
        "in flight": lambda one: f"{one['in_flight']:,}",
        "waiting": lambda one: f"{one['waiting']:,}",
        "created": lambda one: datetime.fromisoformat(one["created_at"]).strftime("%Y-%m-%d %H:%M:%S"),
    }
    rows = [[readable(cell(one)) for cell in columns.values()] for one in subscriptions]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        if column in _FOLDING:
            table.add_column(column, overflow="fold")
        else:
            # Rich would take a blank for a place to cut.
            width = max(cell_len(text) for text in (column, *cells))
            table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    return table


def print_uncut(table: Table, console: Console) -> None:
    """As wide as the terminal, or wider if something had to be cut; elsewhere one line for each row, however long."""
    if console.is_terminal:
        needed = sum((column.min_width or FOLDED_WIDTH) + COLUMN_GAP for column in table.columns)
        console.width = max(console.width, needed)
    else:
        console.width = console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).maximum
    console.print(table)


def _state(one: Mapping[str, Any], now: datetime) -> str:
    if one["connected"]:
        return f"connected ({one['peer']})"
    unseen_s = (now - datetime.fromisoformat(one["last_seen_at"])).total_seconds()
    return f"last seen {duration(unseen_s)} ago"
