"""Parameters of a question, checked.

Law: a value of the kind that was asked for, or a ControlError that says what is.
"""

from __future__ import annotations

from stompbroker.control.errors import ControlError
from stompbroker.delivery import Pattern, parse_shown_topic
from stompbroker.errors import InvalidDestination

__all__ = ["named_topic", "number", "optional_text"]


def number(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ControlError(f"{name} is a whole number from {low} to {high}, not {value!r}")
    return value


def optional_text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ControlError(f"{name} is a text, not {value!r}")
    return value


def named_topic(value: object) -> Pattern:
    """What is written as `orders` or `/topic/orders`."""
    if not isinstance(value, str):
        raise ControlError(f"topic is the name of one, such as orders, not {value!r}")
    try:
        return parse_shown_topic(value)
    except InvalidDestination as error:
        raise ControlError(str(error)) from None
