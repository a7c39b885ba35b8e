"""One request to a running broker: its parameters, checked; its refusal; and waiting until what it asks for is durable.

Law: whatever is wrong is a ControlError that says what is allowed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, final

import trio

from stompbroker.delivery import Pattern, parse_shown_topic
from stompbroker.errors import BrokerError, InvalidDestination

__all__ = [
    "Completion",
    "ControlError",
    "Methods",
    "NotFound",
    "Unavailable",
    "named_topic",
    "number",
    "optional_text",
    "optional_truth",
]

#: By its name what each method calls, and the parameters it takes.
Methods: TypeAlias = Mapping[str, tuple[Callable[..., Awaitable[Any]], frozenset[str]]]


class ControlError(BrokerError):
    """Somebody asked for something that cannot be done; the text says why and what can."""


class NotFound(ControlError):
    """What was named is not there."""


class Unavailable(ControlError):
    """It cannot be done now, and perhaps later."""


def number(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ControlError(f"{name} is a whole number from {low} to {high}, not {value!r}")
    return value


def optional_text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ControlError(f"{name} is a text, not {value!r}")
    return value


def optional_truth(name: str, value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ControlError(f"{name} is true or false, not {value!r}")
    return value


def named_topic(value: object) -> Pattern:
    """What is written as `orders` or `/topic/orders`."""
    if not isinstance(value, str):
        raise ControlError(f"topic is the name of one, such as orders, not {value!r}")
    try:
        return parse_shown_topic(value)
    except InvalidDestination as error:
        raise ControlError(str(error)) from None


@final
class Completion:
    """For one unit: `finish` and `refuse` are what it calls."""

    __slots__ = ("_done", "_refusal", "_what")

    def __init__(self, what: str) -> None:
        #: What the store does not do if it refuses, to be put behind "the store does not".
        self._what = what
        self._done = trio.Event()
        self._refusal: str | None = None

    def finish(self) -> None:
        self._done.set()

    def refuse(self, reason: str) -> None:
        self._refusal = reason
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()
        if self._refusal is not None:
            raise ControlError(f"the store does not {self._what}: {self._refusal}")
