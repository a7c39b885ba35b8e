"""What the answers of a broker hold.

Law: each field is named once, with its type, how it is found, and what it means. Answers are made from this, and so is
the API's document. Times are ISO 8601 in UTC, durations in seconds, sizes in bytes, rates per second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, final, get_type_hints

if TYPE_CHECKING:
    from stompbroker.control.parts import BrokerParts

Item = TypeVar("Item")
#: What a list can be sorted by, and how each value is found; the first is the default.
SortFields: TypeAlias = Mapping[str, Callable[["BrokerParts", Item], Any]]
DESTINATION_KIND: Final = Literal["topic", "queue", "temporary"]


@final
@dataclass(frozen=True, slots=True)
class Shown(Generic[Item]):
    #: A type, a Record, a list of one of these such as [str], or a pair such as (Record, None) for what may be null.
    kind: Any
    #: Without it, the item's attribute of the same name, unless the caller of `describe` gives the value.
    find: Callable[[BrokerParts, Item], Any] | None = None
    says: str | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Record(Generic[Item]):
    """An object in an answer, and how to make one of an item."""

    name: str
    fields: Mapping[str, Shown[Item]]

    def describe(self, broker: BrokerParts, item: Item, **given: Any) -> dict[str, Any]:
        return {name: given[name] if name in given else self._find(name, broker, item) for name in self.fields}

    def sorted_by(self, *names: str) -> SortFields[Item]:
        return {name: partial(self._find, name) for name in names}

    def _find(self, name: str, broker: BrokerParts, item: Item) -> Any:
        find = self.fields[name].find
        return getattr(item, name) if find is None else find(broker, item)


def alike(kind: Any, *names: str) -> dict[str, Shown[Any]]:
    """Several fields of the same type, each an attribute or given."""
    return {name: Shown(kind) for name in names}


def fields_of(kind: type) -> dict[str, Shown[Any]]:
    """The fields of a dataclass. An enum is shown as its value, another dataclass as a record."""
    return {name: _field_of(name, hint) for name, hint in get_type_hints(kind).items()}


def _field_of(name: str, hint: Any) -> Shown[Any]:
    if isinstance(hint, type) and is_dataclass(hint):
        record: Record[Any] = Record(hint.__name__, fields_of(hint))
        return Shown(record, lambda broker, item: record.describe(broker, getattr(item, name)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = tuple(member.value for member in hint)
        return Shown(Literal[values], lambda _, item: getattr(item, name).value)
    return Shown(hint)
