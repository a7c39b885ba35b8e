"""Everything that can be asked over HTTP, as data.

Law: one table. The routes, the document and the page about the API are made of it, so none of them can say something
else. What an endpoint does is a method of `control`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.management import models

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

__all__ = ["ENDPOINTS", "Endpoint", "Param", "ParamKind"]


@final
class ParamKind(Enum):
    TEXT = "string"
    NUMBER = "integer"
    TRUTH = "boolean"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    says: str
    kind: ParamKind = ParamKind.TEXT
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    is_required: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind.value}
        if self.low is not None:
            schema["minimum"] = self.low
        if self.high is not None:
            schema["maximum"] = self.high
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    #: The method of `control`.
    call: str
    summary: str
    answer: type[BaseModel]
    in_query: Mapping[str, Param] = field(default_factory=dict)
    #: Fields of a JSON object.
    in_body: Mapping[str, Param] = field(default_factory=dict)

    @property
    def in_path(self) -> Mapping[str, Param]:
        found = {place: param for place, param in _IN_PATH.items() if place in self.path}
        return {place.rpartition("{")[2].removesuffix("}"): param for place, param in found.items()}

    @property
    def group(self) -> str:
        """Under which title it is documented."""
        return "broker" if self.path == "/overview" else self.path.split("/")[1].replace("-", " ")


def _listed(*fields: str) -> dict[str, Param]:
    sorts = tuple(f"{sign}{name}" for name in fields for sign in ("", "-"))
    return {
        "q": Param(says="Only what contains this text."),
        "sort": Param(says="By which field; - before it for descending.", choices=sorts),
        "limit": Param(says="Entries in one answer; 100 if not given.", kind=ParamKind.NUMBER, low=1, high=1000),
        "cursor": Param(says="The next_cursor of the answer before."),
    }


_MAX_OFFSET: Final = 1 << 62
_OFFSET: Final = Param(says="An offset.", kind=ParamKind.NUMBER, low=0, high=_MAX_OFFSET)
_FILTER: Final = {
    "subscription": Param(says="Only letters of this subscription, by its key."),
    "reason": Param(says="Only letters whose reason contains this text."),
    "message_id": Param(says="Only letters about this message."),
    "offset": _OFFSET,
    "after": Param(says="Where the answer before stopped.", kind=ParamKind.NUMBER, low=-1, high=_MAX_OFFSET),
}
_FEW: Final = Param(says="Letters at once; 100 if not given.", kind=ParamKind.NUMBER, low=1, high=100)
_MANY: Final = Param(says="Letters in one answer; 100 if not given.", kind=ParamKind.NUMBER, low=1, high=1000)
#: Parameters in addresses, by where they stand.
_IN_PATH: Final = {
    "/topics/{name}": Param(says="Its name, such as orders.paid."),
    "/topics/{topic}": Param(says="The topic it was published to."),
    "/messages/{message_id}": Param(says="Its message-id."),
    "/subscriptions/{id}": Param(says="The id of a subscription."),
    "/connections/{id}": Param(says="The number of a connection.", kind=ParamKind.NUMBER, low=1, high=_MAX_OFFSET),
    "/dead-letters/{topic}": Param(says="The topic that they come from."),
    "/{topic}/{offset}": Param(says="Its offset.", kind=ParamKind.NUMBER, low=0, high=_MAX_OFFSET),
}

ENDPOINTS: Final = (
    Endpoint("GET", "/overview", "overview", "What flows, and how the broker is", models.Overview),
    Endpoint(
        "GET",
        "/topics",
        "topics",
        "Topics",
        models.Topics,
        in_query=_listed(
            "name", "published", "rate", "subscribers", "publishers", "kept_messages", "kept_bytes", "stored_messages"
        ),
    ),
    Endpoint("GET", "/topics/{name}", "topic", "One topic, with its policy and who reads it", models.TopicDetails),
    Endpoint(
        "GET",
        "/topics/{topic}/messages/{message_id}",
        "trace",
        "One message: its state for every subscription",
        models.Trace,
    ),
    Endpoint(
        "GET",
        "/subscriptions",
        "subscriptions",
        "Subscriptions, durable and transient",
        models.Subscriptions,
        in_query=_listed("key", "backlog", "in_flight", "waiting", "delivered", "rate", "redelivered", "dead")
        | {
            "durable": Param(says="Only durable ones, or only others.", kind=ParamKind.TRUTH),
            "topic": Param(says="Only those that read this topic."),
        },
    ),
    Endpoint(
        "GET",
        "/subscriptions/{id}",
        "subscription",
        "One subscription, with what it has not settled",
        models.SubscriptionDetails,
    ),
    Endpoint(
        "DELETE",
        "/subscriptions/{id}",
        "remove_subscription",
        "Delete a subscription; whoever is attached to it is disconnected",
        models.RemovedSubscription,
    ),
    Endpoint(
        "POST",
        "/subscriptions/{id}/pause",
        "pause_subscription",
        "Send nothing to it until it is resumed, or the broker started anew",
        models.Subscription,
    ),
    Endpoint("POST", "/subscriptions/{id}/resume", "resume_subscription", "Send to it again", models.Subscription),
    Endpoint(
        "POST",
        "/subscriptions/{id}/move",
        "move_subscription",
        "Have a durable subscription to one topic read on from another place",
        models.MovedSubscription,
        in_body={
            "to": Param(says="earliest, latest, offset=N, an ISO 8601 time, or an age such as 1h.", is_required=True)
        },
    ),
    Endpoint(
        "GET",
        "/connections",
        "connections",
        "Connections",
        models.Connections,
        in_query=_listed("id", "peer", "bytes_in", "bytes_out", "connected_at"),
    ),
    Endpoint("GET", "/connections/{id}", "connection", "One connection", models.Connection),
    Endpoint(
        "DELETE",
        "/connections/{id}",
        "close_connection",
        "Close a connection, with an ERROR that says so",
        models.Connection,
    ),
    Endpoint("GET", "/dead-letters", "dead_letter_topics", "Topics that have dead letters", models.DeadLetterTopics),
    Endpoint(
        "GET",
        "/dead-letters/{topic}",
        "dead_letters",
        "Dead letters of a topic, a piece at a time",
        models.DeadLetters,
        in_query=_FILTER | {"limit": _MANY},
    ),
    Endpoint("GET", "/dead-letters/{topic}/{offset}", "dead_letter", "One dead letter, whole", models.DeadLetter),
    Endpoint(
        "POST",
        "/dead-letters/{topic}/redrive",
        "redrive_dead_letters",
        "Publish what letters are about once more, and take them away",
        models.Redriven,
        in_body=_FILTER
        | {"limit": _FEW, "to": Param(says="To whom; subscriber if not given.", choices=("subscriber", "topic"))},
    ),
    Endpoint(
        "POST",
        "/dead-letters/{topic}/purge",
        "purge_dead_letters",
        "Let letters go for good",
        models.Purged,
        in_body=_FILTER | {"limit": _FEW},
    ),
    Endpoint(
        "GET",
        "/collector",
        "explain_collection",
        "What is kept, for whom, since when, and what would be collected",
        models.Collection,
        in_query={
            "topic": Param(says="Only of this topic."),
            "after": Param(says="The last topic of the answer before."),
            "limit": Param(says="Topics in one answer.", kind=ParamKind.NUMBER, low=1, high=100),
        },
    ),
    Endpoint("POST", "/collector/run", "run_collector", "Have the garbage collector look now", models.CollectorRun),
    Endpoint(
        "POST",
        "/ledger/export",
        "export_ledger",
        "Bring what is settled by now to the lake; answered when it is there",
        models.LedgerExport,
    ),
)
