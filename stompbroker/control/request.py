"""What one method of a running broker takes, how it refuses, and how it waits until a change is durable.

Law: parameters are plain JSON values, checked here before a method runs; every refusal says what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import trio

from stompbroker.changes import StoreState, Unit
from stompbroker.delivery import parse_pattern, parse_shown_topic
from stompbroker.errors import BrokerError, InvalidDestination, shorten

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stompbroker.changes import Effect, Journal
    from stompbroker.control.records import Record
    from stompbroker.delivery import Pattern

#: Larger than any offset or connection number.
MAX_NUMBER: Final = 1 << 62
#: Characters that are repeated of a wrong value.
MAX_SHOWN: Final = 100


class ControlError(BrokerError):
    """A request that cannot be granted; the text says why and what can be asked for."""


class NotFound(ControlError):
    """The named thing does not exist."""


class Unavailable(ControlError):
    """Not possible now, perhaps later."""


class Forbidden(ControlError):
    """The caller may not do that; the text says what it needs."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One parameter: its meaning, as the API's document tells it, and the values it may have."""

    says: str
    kind: type[str] | type[int] | type[bool] = str
    #: Bounds of a number, both included.
    low: int = 0
    high: int = MAX_NUMBER
    #: All values of a text, if there are only a few.
    choices: tuple[str, ...] = ()
    is_required: bool = False

    def check(self, name: str, value: object) -> None:
        """Raises ControlError."""
        if type(value) is not self.kind or (isinstance(value, int) and not self.low <= value <= self.high):
            whole = f"a whole number from {self.low} to {self.high}"
            allowed = {str: "a text", int: whole, bool: "true or false"}[self.kind]
            raise ControlError(f"{name} is {allowed}, not {shorten(repr(value), MAX_SHOWN)}")
        if self.choices and value not in self.choices:
            allowed = ", ".join(choice for choice in self.choices if not choice.startswith("-"))
            descending = ", with - before it for descending" if f"-{self.choices[0]}" in self.choices else ""
            raise ControlError(f"{name} is one of {allowed}{descending}, not {shorten(repr(value), MAX_SHOWN)}")
        if isinstance(value, str) and "\0" in value:
            raise ControlError(f"{name} must not hold a NUL")


class Method(NamedTuple):
    #: Called with the broker's parts and the parameters by name. The first line of its docstring is its summary.
    function: Callable[..., Awaitable[Any]]
    answer: Record[Any]
    params: Mapping[str, Param] = {}
    #: Whether it is also called with the caller, and keeps to what that sees and may change. Others concern the whole
    #: broker, and are refused to a caller that is restricted.
    keeps_to_caller: bool = False
    #: Whether it changes something: then it is for operators, and in the audit log.
    changes: bool = False

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises ControlError unless all of these are known and allowed, and none is missing."""
        if unknown := sorted(given.keys() - self.params.keys()):
            takes = f"it takes {', '.join(self.params)}" if self.params else "it takes no parameters"
            raise ControlError(f"unknown: {', '.join(unknown)}; {takes}")
        if missing := [name for name, param in self.params.items() if param.is_required and name not in given]:
            raise ControlError(f"missing: {', '.join(missing)}")
        for name, value in given.items():
            self.params[name].check(name, value)


def named_topic(name: str) -> Pattern:
    """The topic that is written as `orders` or `/topic/orders`, or the queue `/queue/orders`. Raises ControlError."""
    try:
        return parse_shown_topic(name)
    except InvalidDestination as error:
        raise ControlError(str(error)) from None


def named_pattern(pattern: str) -> Pattern:
    """Written as `orders.>` or `/topic/orders.>`. Raises ControlError."""
    try:
        return parse_pattern(pattern if pattern.startswith("/") else f"/topic/{pattern}")
    except InvalidDestination as error:
        raise ControlError(str(error)) from None


def is_store_failing(journal: Journal) -> bool:
    return journal.statistics().state is StoreState.FAILING


def check_store(journal: Journal) -> None:
    """Raises Unavailable while the store fails: the change would wait for it to come back. If the store is only full,
    a deletion makes room."""
    if is_store_failing(journal):
        raise Unavailable(f"{journal.gate.why}; try again later")


async def make_durable(journal: Journal, effects: list[Effect], *, what: str) -> None:
    """Wait until these are stored, as one unit. Raises ControlError, "the store does not WHAT", if they are refused."""
    is_done, refusals = trio.Event(), list[str]()

    def refuse(reason: str) -> None:
        refusals.append(reason)
        is_done.set()

    journal.submit(Unit(effects, then=is_done.set, refused=refuse))
    await is_done.wait()
    if refusals:
        raise ControlError(f"the store does not {what}: {refusals[0]}")
