"""Last values, for operators: lists them, shows one, takes them away.

Law: what a caller may not read is not there for it. A removal returns when it is durable. Many are removed a portion at
a time, in the order of their names, so that values which are set meanwhile cannot make it last for ever.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stompbroker.changes import ValueChanged
from stompbroker.clock import iso_time, iso_time_if_any
from stompbroker.control.listing import described, list_params, page_of, seen, take_page
from stompbroker.control.looking import TopN
from stompbroker.control.records import Record, Shown
from stompbroker.control.request import (
    ControlError,
    Method,
    NotFound,
    Param,
    check_store,
    make_durable,
    named_pattern,
    named_topic,
)
from stompbroker.delivery import DestinationKind
from stompbroker.stomp import tail_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.changes import Effect
    from stompbroker.control.caller import Caller
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import LastValue, Pattern

#: Values that are removed at once: one unit for the journal.
MAX_PURGED: Final = 1000

LAST_VALUE: Final[Record[LastValue]] = Record(
    "LastValue",
    {
        "topic": Shown(str, lambda _, value: value.destination.name),
        "destination": Shown(str, lambda _, value: str(value.destination)),
        "message_id": Shown(str, lambda _, value: value.message.message_id.decode()),
        "published_at": Shown(str, lambda _, value: iso_time(value.message.published_at_ns)),
        "expires_at": Shown(str | None, lambda _, value: iso_time_if_any(value.message.expires_at_ns)),
        "stored": Shown(
            bool,
            lambda broker, value: broker.registry.last_values.is_stored and value.message.origin.is_persistent,
            "Whether it outlives the broker's process.",
        ),
        "body_bytes": Shown(int, lambda _, value: value.message.body_bytes),
    },
)
_WHOLE: Final[Record[LastValue]] = Record(
    "WholeLastValue",
    {
        **LAST_VALUE.fields,
        "headers": Shown(list[list[str]], lambda _, value: [list(pair) for pair in tail_headers(value.message.tail)]),
        "body": Shown(str, lambda _, value: b64encode(value.message.body).decode(), "In base64."),
        "can_remove": Shown(bool, says="Whether the caller may remove it."),
    },
)
_SORT_FIELDS: Final = LAST_VALUE.sorted_by("topic", "published_at", "body_bytes")


def last_value_of(broker: BrokerParts, destination: Pattern) -> LastValue | None:
    value = broker.registry.last_values.get(destination.key)
    return None if value is None or value.message.has_expired(broker.clock.now_ns()) else value


async def _list(broker: BrokerParts, caller: Caller, pattern: str | None = None, **wanted: Any) -> dict[str, Any]:
    """Last values of topics."""
    values = await _matching(broker, caller, None if pattern is None else _of_topics(named_pattern(pattern)))
    page = await take_page(broker, values, lambda value: [value.destination.name], _SORT_FIELDS, **wanted)
    return page.answer("last_values", await described(partial(LAST_VALUE.describe, broker), page.items, broker.looking))


async def _show(broker: BrokerParts, caller: Caller, topic: str) -> dict[str, Any]:
    """The last value of a topic, whole."""
    value = _find(broker, caller, topic)
    return _WHOLE.describe(broker, value, can_remove=caller.changes(value.destination))


async def _remove(broker: BrokerParts, caller: Caller, topic: str) -> dict[str, Any]:
    """Remove the last value of a topic."""
    value = _find(broker, caller, topic)
    caller.check_changes(value.destination)
    await _take_away(broker, [value.destination])
    return LAST_VALUE.describe(broker, value)


async def _purge(
    broker: BrokerParts, caller: Caller, pattern: str, after: str = "", limit: int = MAX_PURGED
) -> dict[str, Any]:
    """Remove the last values of all topics of a pattern, a portion at a time."""
    wanted = _of_topics(named_pattern(pattern))
    caller.check_changes(wanted)
    behind: TopN[tuple[str, Pattern]] = TopN(limit, is_descending=False)
    for value in await _matching(broker, caller, wanted):
        if value.destination.name > after:
            behind.put((value.destination.name, value.destination))
    picked = behind.take()
    there = [destination for _, destination in picked if last_value_of(broker, destination) is not None]
    if there:
        await _take_away(broker, there)
    return {
        "purged": len(there),
        "after": picked[-1][0] if picked else after,
        "is_complete": behind.count <= len(picked),
    }


async def _matching(broker: BrokerParts, caller: Caller, pattern: Pattern | None) -> list[LastValue]:
    """Those that the caller sees and that have not expired; None for those of all topics."""
    now_ns, found = broker.clock.now_ns(), []
    values = await seen(broker, caller, broker.registry.last_values, lambda value: value.destination)
    async with broker.looking.at_once() as look:
        for value in values:
            if not value.message.has_expired(now_ns) and (pattern is None or pattern.matches(value.destination)):
                found.append(value)
            await look.pause_if_over()
    return found


def _of_topics(pattern: Pattern) -> Pattern:
    if pattern.kind is not DestinationKind.TOPIC:
        raise ControlError(f"{pattern} is no pattern of topics, and only topics have last values")
    return pattern


def _find(broker: BrokerParts, caller: Caller, topic: str) -> LastValue:
    """Raises NotFound, ControlError."""
    destination = named_topic(topic)
    value = last_value_of(broker, destination)
    if value is None or not caller.sees(destination):
        raise NotFound(f"there is no last value of {destination.key!r}")
    return value


async def _take_away(broker: BrokerParts, destinations: Iterable[Pattern]) -> None:
    """Returns when that is durable. Raises ControlError."""
    check_store(broker.journal)
    values = broker.registry.last_values
    effects: list[Effect] = [ValueChanged(values, destination) for destination in destinations]
    await make_durable(broker.journal, effects, what="take that")


_TOPIC: Final = {"topic": Param(says="The name of a topic, such as prices.eur.", is_required=True)}
METHODS: Final = {
    "last_values": Method(
        _list,
        page_of("last_values", LAST_VALUE),
        {"pattern": Param(says="Only those of the topics that it matches, such as prices.>.")}
        | list_params(_SORT_FIELDS),
    ),
    "last_value": Method(_show, _WHOLE, _TOPIC),
    "remove_last_value": Method(_remove, LAST_VALUE, _TOPIC),
    "purge_last_values": Method(
        _purge,
        Record(
            "PurgedValues",
            {"purged": Shown(int), "after": Shown(str, says="Where to go on."), "is_complete": Shown(bool)},
        ),
        {
            "pattern": Param(says="Which topics, such as prices.>; > for all.", is_required=True),
            "after": Param(says="Where the answer before stopped."),
            "limit": Param(says=f"Values at once; {MAX_PURGED:,} if not given.", kind=int, low=1, high=MAX_PURGED),
        },
    ),
}
