"""Turns a matplotlib figure into an `<svg>` inside a page.

Knows nothing of the report. The picture scales with the page, refers to nothing outside, and takes its colours from the
page's variables, so it follows dark mode. Text stays text. The same figure gives the same bytes.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure

from stompbroker_report.palette import DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

P = ParamSpec("P")
T = TypeVar("T")

#: In inches of 72 units. Narrow, so that text stays legible on a phone and does not get too large on a wide screen.
WIDTH: Final = 5.0
HEIGHT: Final = 2.9

_STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": DAY["line"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": DAY["muted"],
    "axes.labelsize": 11,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "grid.color": DAY["line"],
    "grid.linewidth": 0.8,
    "svg.fonttype": "none",
    "text.color": DAY["ink"],
    "text.parse_math": False,  # a `$` in a name is a `$`
    "xtick.color": DAY["line"],
    "xtick.labelcolor": DAY["muted"],
    "xtick.labelsize": 10.5,
    "ytick.color": DAY["line"],
    "ytick.labelcolor": DAY["muted"],
    "ytick.labelsize": 10.5,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}

#: No time and no version: pictures of the same numbers must not differ.
_NO_METADATA: Final = {"Creator": None, "Date": None, "Format": None, "Type": None}

_VARIABLES: Final = {value: f"var(--{name})" for name, value in DAY.items()}
_COLOUR: Final = re.compile("|".join(_VARIABLES))
_BEFORE_IMAGE: Final = re.compile(r"^.*?<svg ", re.DOTALL)
_SIZES: Final = re.compile(r' (?:width|height)="[\d.]+pt"')
_ID: Final = re.compile(r' id="([^"]*)"')
_USED: Final = re.compile(r'(?:url\(#|href="#)([^)"]*)')
_FONT: Final = re.compile(r" ?font-family: [^;\"]*;?")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Apply our style while `draw` runs, and only then."""

    @wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawing


def new_axes(*, height: float = HEIGHT) -> Axes:
    """Empty axes in a new figure, unknown to pyplot."""
    axes: Axes = Figure(figsize=(WIDTH, height), layout="constrained").subplots()
    return axes


def inline_svg(axes: Axes, *, name: str, described: str) -> str:
    """The figure of these `styled` axes as an `<svg>` element.

    `name` keeps its internal ids apart from those of other pictures on the page.
    """
    drawn = io.StringIO()
    figure = axes.figure
    assert isinstance(figure, Figure)
    with mpl.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # The browser draws the text, so missing glyphs in matplotlib's own font do not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
    picture = _BEFORE_IMAGE.sub("<svg ", drawn.getvalue(), count=1).strip()
    head, bracket, rest = picture.partition(">")
    used = set(_USED.findall(rest))
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    rest = _ID.sub(lambda found: found[0] if found[1] in used else "", rest)
    # The page's style sheet sets the font.
    rest = _FONT.sub("", rest)
    rest = _COLOUR.sub(lambda found: _VARIABLES[found[0]], rest)
    head = _SIZES.sub("", head) + f' role="img" aria-label="{html.escape(described)}"'
    return head + bracket + rest
