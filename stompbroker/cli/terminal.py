"""The one way out: what commands print for people, and as JSON for programs.

Law: no other file of `cli/` prints (tests/cli/test_hostile_names.py). Whatever passes is text and never markup, and is
made readable here: a line stays one line. Bodies that a person asked for byte by byte bypass it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    #: Heading → what stands below it for one entry.
    Columns: TypeAlias = Mapping[str, Callable[[Any], str]]

#: Wider than any row: the longest names are a few hundred characters.
MAX_WIDTH = 1_000_000
#: Narrowest width of a column that folds, in characters, and the space between two columns.
FOLDED_WIDTH, COLUMN_GAP = 12, 2


def say(*lines: str, err: bool = False, bold: bool = False) -> None:
    """Each argument is one line, whatever is in it. Tabs stay tabs: they are in bodies, and do no harm."""
    text = "\n".join("\t".join(map(readable, line.split("\t"))) for line in lines)
    typer.echo(typer.style(text, bold=True) if bold else text, err=err)


def complain(sentence: str) -> None:
    """What went wrong, on stderr. Its line breaks are kept: texts of others in it have been made readable before."""
    typer.echo(f"stompbroker: {readable(sentence, keeps_lines=True)}", err=True)


def ask(question: str) -> None:
    """On stderr, because stdout is for results; the caller reads the answer."""
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
    from rich.console import Console

    return Console(stderr=err, markup=False, highlight=False)


@contextmanager
def progress_bar(text: str | None, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of things done. On stderr; without a text there is no bar."""
    if text is None:
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=open_console(err=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def counts(*fields: str, **headings: str) -> Columns:
    """Columns of whole numbers, headed by their field or by a word of their own."""
    named = {field.replace("_", " "): field for field in fields} | headings
    return {heading: partial(_count, field) for heading, field in named.items()}


def _count(field: str, one: Mapping[str, int]) -> str:
    return f"{one[field]:,}"


def table_of(
    entries: Iterable[Any],
    columns: Columns,
    *,
    right: Collection[str] = (),
    folds: Collection[str] = (),
    is_cut: bool = False,
    style: Callable[[Any], str] = lambda _entry: "",
) -> Table:
    """One row for each entry, in the order given. People copy names and ids: print it with `print_uncut`.

    Columns in `right` are aligned right. Those in `folds` continue on the next line where the terminal is too narrow.
    `is_cut` is for a screen that must fit: what has no room ends in an ellipsis.
    """
    from rich.cells import cell_len
    from rich.table import Table

    rows = [(style(entry), [readable(cell(entry)) for cell in columns.values()]) for entry in entries]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(columns):
        # Without a minimum, Rich cuts also what must not wrap.
        needed = max([cell_len(heading), *(cell_len(cells[number]) for _, cells in rows)])
        if heading in folds:
            needed = min(needed, max(FOLDED_WIDTH, len(heading)))
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=heading not in folds,
            overflow="ellipsis" if is_cut else "fold",
            min_width=None if is_cut else needed,
        )
    for row_style, cells in rows:
        table.add_row(*(shown(cell, row_style) for cell in cells))
    return table


def print_uncut(*parts: RenderableType, console: Console | None = None) -> None:
    """Print tables and texts. A table fits the terminal, with narrow gaps if need be, unless something had to be cut.

    Elsewhere than on a terminal each row of a table is one line, however long.
    """
    from rich.table import Table

    console = console or open_console()
    width = console.width
    for part in parts:
        console.width = width
        if not isinstance(part, Table):
            pass
        elif console.is_terminal:
            gaps = len(part.columns) - 1
            needed = sum(column.min_width or 0 for column in part.columns)
            if needed + gaps <= width < needed + COLUMN_GAP * gaps:
                part.padding = (0, 1, 0, 0)
            else:
                console.width = max(width, needed + COLUMN_GAP * gaps)
        else:
            console.width = console.measure(part, options=console.options.update(max_width=MAX_WIDTH)).maximum
        console.print(part)
