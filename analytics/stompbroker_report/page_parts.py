"""What a page of the report is made of: tables, tiles, banners, pictures.

Law: knows HTML and nothing of the report. Text becomes HTML only by `Markup.format`, which escapes it; strangers' text
only by `name` and `quoted`, which also make visible what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final, final

from markupsafe import Markup

from stompbroker_report.palette import DAY, NIGHT, custom_properties
from stompbroker_report.visible_text import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from stompbroker_report.plots import Plot

__all__ = [
    "NOTHING",
    "Column",
    "banner",
    "beside",
    "chip",
    "document",
    "joined",
    "name",
    "panel",
    "picture",
    "quoted",
    "section",
    "sentence",
    "side_by_side",
    "spark_bars",
    "table",
    "tile",
    "to_the_second",
]

NOTHING: Final = Markup("")

# The policy: nothing is fetched and nothing runs, whatever should have slipped into the text.
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

#: Columns that have room on a phone; rows of wider tables become boxes there.
MAX_NARROW: Final = 3

#: Width and height of small bars, and what lies between two. The sheet says how large such a unit is.
_SPARK_WIDTH: Final = 104
_SPARK_HEIGHT: Final = 32
_SPARK_GAP: Final = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table; on a phone its title stands above each value, and a name has a line of its own."""

    title: str
    is_number: bool = True
    #: What a name is needs no title.
    is_name: bool = False


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("\n").join(parts)


def name(text: str) -> Markup:
    """What a stranger chose, apart from the direction and the breaks of the text around it."""
    whole = visible(text)
    short = shortened(whole)
    if short == whole:
        return Markup("<bdi>{}</bdi>").format(short)
    return Markup('<bdi title="{}">{}</bdi>').format(whole[:2000], short)


def quoted(text: str | None) -> Markup:
    """What a stranger said, which may be nothing."""
    if text is None:
        return Markup('<span class="muted">not said</span>')
    if not text.strip():
        return Markup('<span class="muted">empty</span>')
    return name(text)


def document(*, title: str, body: Markup) -> str:
    """A whole page, which needs nothing beside itself."""
    return str(_DOCUMENT.format(title=title, style=_style(), body=body))


def banner(kind: str, text: str | Markup) -> Markup:
    """A sentence that is not to be missed: `good`, `warn` or `bad`."""
    return Markup('<p class="banner {}">{}</p>').format(kind, text)


def chip(text: str, kind: str = "") -> Markup:
    return Markup('<span class="chip {}">{}</span>').format(kind, text)


def tile(label: str, value: str, note: str = "", *, kind: str = "") -> Markup:
    """One number that matters, and what it is to be compared with."""
    return Markup(
        '<div class="tile {}"><div class="label">{}</div><div class="value">{}</div><div class="note">{}</div></div>'
    ).format(kind, label, value, note)


def panel(title: str, *parts: Markup) -> Markup:
    return Markup('<section class="panel">\n<h3>{}</h3>\n{}\n</section>').format(title, joined(filter(None, parts)))


def picture(title: str, plot: Plot | None, *, otherwise: str) -> Markup:
    """A picture under its title and legend, or a sentence that says why there is none."""
    if plot is None:
        return panel(title, Markup('<p class="muted">{}</p>').format(otherwise))
    keys = joined(
        Markup('<li><span class="swatch" style="color: var(--{})"></span><bdi>{}</bdi></li>').format(
            key.colour, key.text
        )
        for key in plot.legend
    )
    legend = Markup('<ul class="legend">\n{}\n</ul>').format(keys) if keys else NOTHING
    # `drawing` has escaped what is text in it.
    return panel(title, legend, Markup("<figure>{}</figure>").format(Markup(plot.svg)))


def section(title: str, *parts: Markup) -> Markup:
    body = joined(filter(None, parts))
    return Markup("<h2>{}</h2>\n{}").format(title, body) if body else NOTHING


def side_by_side(*pictures: Markup) -> Markup:
    return Markup('<div class="columns">\n{}\n</div>').format(joined(pictures))


def beside(drawn: Markup, numbers: Markup) -> Markup:
    """A picture, and a table that needs more room than it."""
    return Markup('<div class="columns beside">\n{}\n{}\n</div>').format(drawn, numbers)


def sentence(text: str) -> Markup:
    return Markup('<p class="muted small">{}</p>').format(text)


def to_the_second(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Markup]], *, rest: Sequence[str] = ()) -> Markup:
    """Rows as wide as `columns`; `rest` is a last row about what is left out."""
    head = joined(
        Markup('<th class="{}">{}</th>').format("number" if column.is_number else "", column.title)
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
    """A few values as small bars, the last of them in a colour of its own; None leaves its place empty."""
    greatest = max((value for value in values if value is not None), default=0.0) or 1.0
    step = (_SPARK_WIDTH + _SPARK_GAP) / len(values)
    bars = []
    for number, value in enumerate(values):
        if value is None:
            continue
        # What is not nothing can be seen.
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
            "name" if column.is_name else "number" if column.is_number else "text",
            NOTHING if column.is_name else Markup(' data-label="{}"').format(column.title),
            cell,
        )
        for column, cell in zip(columns, row, strict=True)
    )


def _style() -> Markup:
    """The sheet; a browser takes what is in it as it is, so there is nothing to escape."""
    sheet = files("stompbroker_report").joinpath("report.css").read_text(encoding="utf-8")
    day = f":root {{ color-scheme: light dark; {custom_properties(DAY)} }}"
    # Not for print: paper is white, also where a browser is in the dark.
    night = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {custom_properties(NIGHT)} }} }}"
    return Markup(f"{day}\n{night}\n{sheet}")
