"""The colours of the report: names, each with a value for light and one for dark mode.

The only place with colours. Text has a contrast of at least 4.5 to its background, lines and areas of plots at least 3.
No two values of `DAY` are equal: plots are drawn with the values, which are then replaced by the names.
"""

from __future__ import annotations

from typing import Final

DAY: Final = {
    "ground": "#f4f6f9",
    "surface": "#fffffe",
    "raised": "#eef1f6",
    "ink": "#1a2230",
    "muted": "#566173",
    "line": "#d9dfe8",
    "accent": "#0b5cad",
    "good": "#17693f",
    "warn": "#8a5200",
    "bad": "#b3261e",
    "good-ground": "#e3f3ea",
    "warn-ground": "#fdf0d9",
    "bad-ground": "#fce8e6",
    "green": "#17875f",
    "blue": "#0b6bcb",
    "red": "#c4322a",
    "amber": "#b06a00",
    "violet": "#7a4fd0",
    "rose": "#b8397f",
    "slate": "#68758a",
    "brown": "#8b5e3c",
    "teal": "#0c8291",
}

NIGHT: Final = {
    "ground": "#0f141b",
    "surface": "#171e28",
    "raised": "#212a37",
    "ink": "#e5eaf1",
    "muted": "#9ba8ba",
    "line": "#2b3646",
    "accent": "#75b5ff",
    "good": "#6cd39d",
    "warn": "#f0b65a",
    "bad": "#ff9a90",
    "good-ground": "#143324",
    "warn-ground": "#3a2b10",
    "bad-ground": "#451d1a",
    "green": "#43b98c",
    "blue": "#5aa9ff",
    "red": "#f26d63",
    "amber": "#e5a53c",
    "violet": "#a98bf5",
    "rose": "#ea7fb8",
    "slate": "#8592a6",
    "brown": "#c4936d",
    "teal": "#3fbccb",
}

#: The outcomes of a delivery in the order of every list, with their colours.
OUTCOMES: Final = {
    "acked": "green",
    "sent": "blue",
    "dead": "red",
    "discarded": "rose",
    "expired": "amber",
    "evicted": "brown",
    "dropped": "violet",
    "unsubscribed": "slate",
    "skipped": "teal",
    "unknown": "ink",
}

#: Colours of lines; the most important line gets the first.
LINES: Final = ("blue", "amber", "teal", "violet", "rose", "slate")


def custom_properties(scheme: dict[str, str]) -> str:
    """As CSS declarations."""
    return " ".join(f"--{name}: {value};" for name, value in scheme.items())
