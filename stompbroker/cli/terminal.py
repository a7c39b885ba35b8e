"""The one way out: what commands print for people, and as JSON for programs.

Law: no other file of `cli/` prints (tests/cli/test_hostile_names.py). Whatever passes is text and never markup, and is
made readable here, whoever chose it: a line stays one line. Bodies that a person asked for byte by byte go past it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["as_json", "ask", "complain", "open_console", "say", "say_json", "shown"]


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
