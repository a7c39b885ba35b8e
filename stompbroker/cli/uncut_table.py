"""Tables in which what is there to be copied is neither cut nor wrapped.

Law: from texts to something Rich can print; what a text means is the caller's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from rich.cells import cell_len
from rich.table import Table

from stompbroker.cli.terminal import shown
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Column", "uncut_table"]


@final
@dataclass(frozen=True, slots=True)
class Column:
    name: str
    is_number: bool = False
    folds: bool = False  # goes on below itself where the terminal is too narrow


def uncut_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    """One row each, in the order given; there must be one. To be printed with `print_uncut`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        if column.folds:
            table.add_column(column.name, overflow="fold")
        else:
            # Rich would take a blank for a place to cut.
            width = max(cell_len(text) for text in (column.name, *map(readable, cells)))
            table.add_column(
                column.name, justify="right" if column.is_number else "left", no_wrap=True, min_width=width
            )
    for row in rows:
        table.add_row(*map(shown, row))
    return table
