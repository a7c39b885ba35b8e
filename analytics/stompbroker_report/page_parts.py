"""The building blocks of a report's page: tables, tiles, banners, pictures.

Knows HTML and nothing of the report. Text becomes HTML only through `Markup.format`, which escapes it. Text chosen by
clients also passes `name` or `quoted`, which make invisible characters visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Final, final

from markupsafe import Markup

from stompbroker_report.palette import DAY, NIGHT, custom_properties
from stompbroker_report.visible_text import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from stompbroker_report.plots import Plot

NOTHING: Final = Markup("")

# The policy lets the page fetch and run nothing, even if markup slips through the escaping.
_DOCUMENT: Final = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
""")

#: Columns that fit on a phone; there, rows of wider tables become boxes.
MAX_NARROW: Final = 3

#: Size of a row of small bars and the gap between two, in units that the style sheet scales.
_SPARK_WIDTH: Final = 104
_SPARK_HEIGHT: Final = 32
_SPARK_GAP: Final = 3


@final
class Cell(Enum):
    """What a column holds: the class of its cells in the style sheet."""

    #: On a phone a name has a line of its own, without the title that other values have.
    NAME = "name"
    TEXT = "text"
    NUMBER = "number"


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    holds: Cell = Cell.NUMBER


def numbers(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(map(Column, titles))


def names(*titles: str) -> tuple[Column, ...]:
    """Columns of names."""
    return tuple(Column(title, Cell.NAME) for title in titles)


def texts(*titles: str) -> tuple[Column, ...]:
    """Columns of other texts."""
    return tuple(Column(title, Cell.TEXT) for title in titles)


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("\n").join(parts)


def name(text: str) -> Markup:
    """A name that a client chose, isolated from the direction of the text around it."""
    whole = visible(text)
    short = shortened(whole)
    if short == whole:
        return Markup("<bdi>{}</bdi>").format(short)
    return Markup('<bdi title="{}">{}</bdi>').format(whole[:2000], short)


def quoted(text: str | None) -> Markup:
    """A reason that a client gave, which may be missing or empty."""
    if text is None:
        return Markup('<span class="muted">not said</span>')
    if not text.strip():
        return Markup('<span class="muted">empty</span>')
    return name(text)


def document(*, title: str, body: Markup) -> str:
    """A whole page that needs no other file."""
    return str(_DOCUMENT.format(title=title, style=_style(), body=body))


def banner(kind: str, text: str | Markup) -> Markup:
    """A sentence nobody should miss; `kind` is `good`, `warn` or `bad`."""
    return Markup('<p class="banner {}">{}</p>').format(kind, text)


def chip(text: str, kind: str = "") -> Markup:
    return Markup('<span class="chip {}">{}</span>').format(kind, text)


def tile(label: str, value: str, note: str = "", *, kind: str = "") -> Markup:
    """A key number, with a note on what it usually is."""
    return Markup(
        '<div class="tile {}"><div class="label">{}</div><div class="value">{}</div><div class="note">{}</div></div>'
    ).format(kind, label, value, note)


def panel(title: str | Markup, *parts: Markup) -> Markup:
    return Markup('<section class="panel">\n<h3>{}</h3>\n{}\n</section>').format(title, joined(filter(None, parts)))


def picture(title: str, plot: Plot | None, *, otherwise: str) -> Markup:
    """A picture with its title and legend, or `otherwise`, which says why there is none."""
    if plot is None:
        return panel(title, Markup('<p class="muted">{}</p>').format(otherwise))
    keys = joined(
        Markup('<li><span class="swatch" style="color: var(--{})"></span><bdi>{}</bdi></li>').format(
            key.colour, key.text
        )
        for key in plot.legend
    )
    legend = Markup('<ul class="legend">\n{}\n</ul>').format(keys) if keys else NOTHING
    # `drawing.inline_svg` has escaped the texts in it.
    return panel(title, legend, Markup("<figure>{}</figure>").format(Markup(plot.svg)))


def section(title: str, *parts: Markup) -> Markup:
    body = joined(filter(None, parts))
    return Markup("<h2>{}</h2>\n{}").format(title, body) if body else NOTHING


def side_by_side(*pictures: Markup) -> Markup:
    return Markup('<div class="columns">\n{}\n</div>').format(joined(pictures))


def beside(drawn: Markup, numbers: Markup) -> Markup:
    """A picture and a wider table."""
    return Markup('<div class="columns beside">\n{}\n{}\n</div>').format(drawn, numbers)


def sentence(text: str) -> Markup:
    return Markup('<p class="muted small">{}</p>').format(text)


def to_the_second(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Markup]], *, rest: Sequence[str] = ()) -> Markup:
    """`rest` is a last row that adds up the omitted ones."""
    head = joined(
        Markup('<th class="{}">{}</th>').format("number" if column.holds is Cell.NUMBER else "", column.title)
        for column in columns
    )
    body = [Markup("<tr>{}</tr>").format(_cells(columns, row)) for row in rows]
    if rest:
        body.append(Markup('<tr class="rest">{}</tr>').format(_cells(columns, rest)))
    kind = "wide" if len(columns) > MAX_NARROW else ""
    return Markup('<table class="{}">\n<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>').format(
        kind, head, joined(body)
    )


def spark_bars(values: Sequence[float | None], *, last: str, described: str) -> Markup:
    """A few values as small bars, the last one in the colour `last`; None leaves a gap."""
    greatest = max((value for value in values if value is not None), default=0.0) or 1.0
    step = (_SPARK_WIDTH + _SPARK_GAP) / len(values)
    bars = []
    for number, value in enumerate(values):
        if value is None:
            continue
        # Any value above zero stays visible.
        height = max(value / greatest * (_SPARK_HEIGHT - 2), 1.0 if value else 0.0)
        colour = last if number == len(values) - 1 else "slate"
        bars.append(
            Markup('<rect x="{}" y="{}" width="{}" height="{}" style="fill: var(--{})"/>').format(
                f"{number * step:.1f}",
                f"{_SPARK_HEIGHT - height:.1f}",
                f"{step - _SPARK_GAP:.1f}",
                f"{height:.1f}",
                colour,
            )
        )
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_SPARK_WIDTH, _SPARK_HEIGHT, described, NOTHING.join(bars))


def _cells(columns: Sequence[Column], row: Sequence[str | Markup]) -> Markup:
    return NOTHING.join(
        Markup('<td class="{}"{}>{}</td>').format(
            column.holds.value,
            NOTHING if column.holds is Cell.NAME else Markup(' data-label="{}"').format(column.title),
            cell,
        )
        for column, cell in zip(columns, row, strict=True)
    )


def _style() -> Markup:
    """The style sheet; browsers do not unescape it, so it is not escaped."""
    sheet = files("stompbroker_report").joinpath("report.css").read_text(encoding="utf-8")
    day = f":root {{ color-scheme: light dark; {custom_properties(DAY)} }}"
    # Not for print: paper is white even if the browser is in dark mode.
    night = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {custom_properties(NIGHT)} }} }}"
    return Markup(f"{day}\n{night}\n{sheet}")
