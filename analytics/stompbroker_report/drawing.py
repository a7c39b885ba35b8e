"""From a figure to a picture inside a page.

Law: knows matplotlib and nothing of the report. The picture has no size of its own but its proportions, no outside
resource and no colour but the page's names for them, so it follows the page into the dark; text stays text. The same
figure gives the same bytes.
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

__all__ = ["HEIGHT", "WIDTH", "inline_svg", "new_axes", "styled"]

P = ParamSpec("P")
T = TypeVar("T")

#: In inches of 72 units. Narrow, so that text is still legible where a phone shrinks it, and not too large where a
#: wide screen enlarges it.
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

#: No time and no version of ours or theirs: they would make two pictures of the same numbers differ.
_NO_METADATA: Final = {"Creator": None, "Date": None, "Format": None, "Type": None}

_VARIABLES: Final = {value: f"var(--{name})" for name, value in DAY.items()}
_COLOUR: Final = re.compile("|".join(_VARIABLES))
_BEFORE_IMAGE: Final = re.compile(r"^.*?<svg ", re.DOTALL)
_SIZES: Final = re.compile(r' (?:width|height)="[\d.]+pt"')
_ID: Final = re.compile(r' id="([^"]*)"')
_USED: Final = re.compile(r'(?:url\(#|href="#)([^)"]*)')
_FONT: Final = re.compile(r" ?font-family: [^;\"]*;?")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Whatever `draw` puts into its figure looks like ours, and figures of others do not."""

    @wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawing


def new_axes(*, height: float = HEIGHT) -> Axes:
    """Empty axes in a figure of their own, which pyplot and so every other drawing knows nothing of."""
    axes: Axes = Figure(figsize=(WIDTH, height), layout="constrained").subplots()
    return axes


def inline_svg(axes: Axes, *, name: str, described: str) -> str:
    """The figure of these `styled` axes as an `<svg>` element.

    `name` keeps its inner references apart from those of other pictures on the page.
    """
    drawn = io.StringIO()
    figure = axes.figure
    assert isinstance(figure, Figure)
    with mpl.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # Text stays text: the browser's fonts have it, if only matplotlib's own lack it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
    picture = _BEFORE_IMAGE.sub("<svg ", drawn.getvalue(), count=1).strip()
    head, bracket, rest = picture.partition(">")
    used = set(_USED.findall(rest))
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    rest = _ID.sub(lambda found: found[0] if found[1] in used else "", rest)
    # The sheet of the page says which font.
    rest = _FONT.sub("", rest)
    rest = _COLOUR.sub(lambda found: _VARIABLES[found[0]], rest)
    head = _SIZES.sub("", head) + f' role="img" aria-label="{html.escape(described)}"'
    return head + bracket + rest
