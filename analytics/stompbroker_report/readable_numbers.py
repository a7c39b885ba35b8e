"""Numbers for people: counts, shares, times, sizes.

Pure functions. At most three significant figures and a unit; an unknown number is a dash, and a small one is never
shown as zero. No-break spaces keep a number and its unit on one line.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

NumberT = TypeVar("NumberT")

#: Shown for an unknown number.
UNKNOWN: Final = "–"

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400

_MULTIPLES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SIZES: Final = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def _in_one_piece(write: Callable[[NumberT], str]) -> Callable[[NumberT], str]:
    @wraps(write)
    def written(number: NumberT) -> str:
        return write(number).replace(" ", "\N{NO-BREAK SPACE}")

    return written


def count(number: float | None) -> str:
    """`1,234,567`."""
    return UNKNOWN if number is None else f"{number:,.0f}"


@_in_one_piece
def compact(number: float) -> str:
    """Short, for axes: `950`, `1.2 k`, `35 M`."""
    for length, unit in _MULTIPLES:
        if number >= length * 0.9995:
            return f"{_three_figures(number / length)} {unit}"
    return _three_figures(number) if number % 1 else f"{number:.0f}"


@_in_one_piece
def share(part: float | None) -> str:
    """A part of 1 as a percentage: `4.2 %`."""
    if part is None:
        return UNKNOWN
    percent = part * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    if percent in (0, 100):
        return f"{percent:.0f} %"
    return f"{percent:.2f} %" if percent < 1 or percent > 99 else f"{percent:.1f} %"


def factor(times: float | None) -> str:
    """How many times as much: `3.1×`."""
    if times is None:
        return UNKNOWN
    return f"{times:,.0f}×" if times >= 10 else f"{times:.1f}×"


@_in_one_piece
def duration(seconds: float | None) -> str:
    """`350 µs`, `35 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return UNKNOWN
    # Negative: the clock was set back between the two instants.
    if seconds <= 0:
        return "0 s"
    # Beyond these bounds, rounding would give 1,000 (or 60) of the smaller unit.
    if seconds < 0.9995e-3:
        return f"{_three_figures(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{_three_figures(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{_three_figures(seconds)} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return _of_two(whole, _MINUTE_S, "min", 1, "s")
    # Hours are shown with whole minutes, days with whole hours.
    if (minutes := round(seconds / _MINUTE_S) * _MINUTE_S) < _DAY_S:
        return _of_two(minutes, _HOUR_S, "h", _MINUTE_S, "min")
    return _of_two(round(seconds / _HOUR_S) * _HOUR_S, _DAY_S, "d", _HOUR_S, "h")


@_in_one_piece
def size(number_of_bytes: float | None) -> str:
    """`512 B`, `1.5 KiB`, `20.3 MiB`."""
    if number_of_bytes is None:
        return UNKNOWN
    for length, unit in _SIZES:
        if number_of_bytes >= length * 0.9995:
            return f"{_three_figures(number_of_bytes / length)} {unit}"
    return f"{number_of_bytes:,.0f} B"


def _three_figures(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    if number >= 9.995:
        return f"{number:.1f}".removesuffix(".0")
    if number >= 0.1:
        return f"{number:.2f}".rstrip("0").removesuffix(".")
    return f"{number:.2g}"


def _of_two(seconds: int, large_s: int, large: str, small_s: int, small: str) -> str:
    first, rest = divmod(seconds, large_s)
    second = rest // small_s
    return f"{first:,} {large} {second} {small}" if second else f"{first:,} {large}"
