"""The one way out: what commands print for people, and as JSON for programs.

Law: no other file of `cli/` prints (tests/cli/test_hostile_names.py). Whatever passes is text and never markup, and is
made readable here, whoever chose it: a line stays one line. Bodies that a person asked for byte by byte go past it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import typer

from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Column",
    "as_json",
    "ask",
    "complain",
    "open_console",
    "print_uncut",
    "progress_bar",
    "say",
    "say_json",
    "shown",
    "uncut_table",
]

#: Wider than any row: the longest names are a few hundred signs.
MAX_WIDTH = 1_000_000

#: What is left, in signs, of a column that folds when there is no room; and what is between two columns.
FOLDED_WIDTH, COLUMN_GAP = 12, 2


def say(*lines: str, err: bool = False, bold: bool = False) -> None:
    """Each argument is one line, whatever is in it. Tabs stay tabs: they are in bodies, and do no harm."""
    text = "\n".join("\t".join(map(readable, line.split("\t"))) for line in lines)
    typer.echo(typer.style(text, bold=True) if bold else text, err=err)


def complain(sentence: str) -> None:
    """What went wrong, on stderr. Line breaks are the sentence's own: what others wrote in it is readable already."""
    typer.echo(f"stompbroker: {readable(sentence, keeps_lines=True)}", err=True)


def ask(question: str) -> None:
    """On stderr, because stdout is for what comes of it; the answer is typed behind it."""
    typer.echo(f"{readable(question)} [y/N] ", err=True, nl=False)


def say_json(value: Any) -> None:
    typer.echo(as_json(value, indent=2))


def as_json(value: Any, *, indent: int | None = None) -> str:
    # In ASCII. DEL is the one control character that JSON leaves as it is.
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def shown(text: str, style: str = "") -> Text:
    """For Rich: one line, or one cell of a table."""
    from rich.text import Text

    return Text(readable(text), style)


def open_console(*, err: bool = False) -> Console:
    """For tables and progress bars of what `shown` made."""
    from rich.console import Console

    return Console(stderr=err, markup=False, highlight=False)


@contextmanager
def progress_bar(text: str | None, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields what to call with how much is done. On stderr, because stdout is for the summary; None for no bar."""
    if text is None:
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=open_console(err=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


# Tables in which what is there to be copied is neither cut nor wrapped ------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Column:
    name: str
    is_number: bool = False
    folds: bool = False  # goes on below itself where the terminal is too narrow


def uncut_table(columns: Mapping[Column, Callable[[Any], str]], entries: Iterable[Mapping[str, Any]]) -> Table:
    """One row each, in the order given; there must be one. To be printed with `print_uncut`."""
    from rich.cells import cell_len
    from rich.table import Table

    rows = [[readable(cell(entry)) for cell in columns.values()] for entry in entries]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        if column.folds:
            table.add_column(column.name, overflow="fold")
        else:
            # Rich would take a blank for a place to cut.
            width = max(cell_len(text) for text in (column.name, *cells))
            table.add_column(
                column.name, justify="right" if column.is_number else "left", no_wrap=True, min_width=width
            )
    for row in rows:
        table.add_row(*map(shown, row))
    return table


def print_uncut(table: Table, console: Console | None = None) -> None:
    """As wide as the terminal, or wider if something had to be cut; elsewhere one line for each row, however long."""
    console = console or open_console()
    if console.is_terminal:
        needed = sum((column.min_width or FOLDED_WIDTH) + COLUMN_GAP for column in table.columns)
        console.width = max(console.width, needed)
    else:
        console.width = console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).maximum
    console.print(table)
