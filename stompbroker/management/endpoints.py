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
@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    path: str
    call: str
    summary: str
    answer: type[BaseModel]
    method: str = "GET"
    in_path: Mapping[str, Param] = field(default_factory=dict)
    in_query: Mapping[str, Param] = field(default_factory=dict)
    #: Fields of a JSON object.
    in_body: Mapping[str, Param] = field(default_factory=dict)
    group: str = ""


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
_TOPIC: Final = {"topic": Param(says="The topic that they come from.", is_required=True)}
_SUBSCRIPTION: Final = {"id": Param(says="The id of a subscription.", is_required=True)}
_CONNECTION: Final = {
    "id": Param(says="The number of a connection.", kind=ParamKind.NUMBER, low=1, high=_MAX_OFFSET, is_required=True)
}

ENDPOINTS: Final = (
    Endpoint(
        path="/overview",
        call="overview",
        summary="What flows, and how the broker is",
        answer=models.Overview,
        group="broker",
    ),
    Endpoint(
        path="/topics",
        call="topics",
        summary="Topics",
        answer=models.Topics,
        in_query=_listed(
            "name", "published", "rate", "subscribers", "publishers", "kept_messages", "kept_bytes", "stored_messages"
        ),
        group="topics",
    ),
    Endpoint(
        path="/topics/{name}",
        call="topic",
        summary="One topic, with its policy and who reads it",
        answer=models.TopicDetails,
        in_path={"name": Param(says="Its name, such as orders.paid.", is_required=True)},
        group="topics",
    ),
    Endpoint(
        path="/topics/{topic}/messages/{message_id}",
        call="trace",
        summary="One message: its state for every subscription",
        answer=models.Trace,
        in_path={
            "topic": Param(says="The topic it was published to.", is_required=True),
            "message_id": Param(says="Its message-id.", is_required=True),
        },
        group="topics",
    ),
    Endpoint(
        path="/subscriptions",
        call="subscriptions",
        summary="Subscriptions, durable and transient",
        answer=models.Subscriptions,
        in_query=_listed("key", "backlog", "in_flight", "waiting", "delivered", "rate", "redelivered", "dead")
        | {
            "durable": Param(says="Only durable ones, or only others.", kind=ParamKind.TRUTH),
            "topic": Param(says="Only those that read this topic."),
        },
        group="subscriptions",
    ),
    Endpoint(
        path="/subscriptions/{id}",
        call="subscription",
        summary="One subscription, with what it has not settled",
        answer=models.SubscriptionDetails,
        in_path=_SUBSCRIPTION,
        group="subscriptions",
    ),
    Endpoint(
        path="/subscriptions/{id}",
        method="DELETE",
        call="remove_subscription",
        summary="Delete a subscription; whoever is attached to it is disconnected",
        answer=models.RemovedSubscription,
        in_path=_SUBSCRIPTION,
        group="subscriptions",
    ),
    Endpoint(
        path="/subscriptions/{id}/pause",
        method="POST",
        call="pause_subscription",
        summary="Send nothing to it until it is resumed, or the broker started anew",
        answer=models.Subscription,
        in_path=_SUBSCRIPTION,
        group="subscriptions",
    ),
    Endpoint(
        path="/subscriptions/{id}/resume",
        method="POST",
        call="resume_subscription",
        summary="Send to it again",
        answer=models.Subscription,
        in_path=_SUBSCRIPTION,
        group="subscriptions",
    ),
    Endpoint(
        path="/subscriptions/{id}/move",
        method="POST",
        call="move_subscription",
        summary="Have a durable subscription to one topic read on from another place",
        answer=models.MovedSubscription,
        in_path=_SUBSCRIPTION,
        in_body={
            "to": Param(says="earliest, latest, offset=N, an ISO 8601 time, or an age such as 1h.", is_required=True)
        },
        group="subscriptions",
    ),
    Endpoint(
        path="/connections",
        call="connections",
        summary="Connections",
        answer=models.Connections,
        in_query=_listed("id", "peer", "bytes_in", "bytes_out", "connected_at"),
        group="connections",
    ),
    Endpoint(
        path="/connections/{id}",
        call="connection",
        summary="One connection",
        answer=models.Connection,
        in_path=_CONNECTION,
        group="connections",
    ),
    Endpoint(
        path="/connections/{id}",
        method="DELETE",
        call="close_connection",
        summary="Close a connection, with an ERROR that says so",
        answer=models.Connection,
        in_path=_CONNECTION,
        group="connections",
    ),
    Endpoint(
        path="/dead-letters",
        call="dead_letter_topics",
        summary="Topics that have dead letters",
        answer=models.DeadLetterTopics,
        group="dead letters",
    ),
    Endpoint(
        path="/dead-letters/{topic}",
        call="dead_letters",
        summary="Dead letters of a topic, a piece at a time",
        answer=models.DeadLetters,
        in_path=_TOPIC,
        in_query=_FILTER | {"limit": _MANY},
        group="dead letters",
    ),
    Endpoint(
        path="/dead-letters/{topic}/{offset}",
        call="dead_letter",
        summary="One dead letter, whole",
        answer=models.DeadLetter,
        in_path=_TOPIC
        | {"offset": Param(says="Its offset.", kind=ParamKind.NUMBER, low=0, high=_MAX_OFFSET, is_required=True)},
        group="dead letters",
    ),
    Endpoint(
        path="/dead-letters/{topic}/redrive",
        method="POST",
        call="redrive_dead_letters",
        summary="Publish what letters are about once more, and take them away",
        answer=models.Redriven,
        in_path=_TOPIC,
        in_body=_FILTER
        | {"limit": _FEW, "to": Param(says="To whom; subscriber if not given.", choices=("subscriber", "topic"))},
        group="dead letters",
    ),
    Endpoint(
        path="/dead-letters/{topic}/purge",
        method="POST",
        call="purge_dead_letters",
        summary="Let letters go for good",
        answer=models.Purged,
        in_path=_TOPIC,
        in_body=_FILTER | {"limit": _FEW},
        group="dead letters",
    ),
    Endpoint(
        path="/collector",
        call="explain_collection",
        summary="What is kept, for whom, since when, and what would be collected",
        answer=models.Collection,
        in_query={
            "topic": Param(says="Only of this topic."),
            "after": Param(says="The last topic of the answer before."),
            "limit": Param(says="Topics in one answer.", kind=ParamKind.NUMBER, low=1, high=100),
        },
        group="collector",
    ),
    Endpoint(
        path="/collector/run",
        method="POST",
        call="run_collector",
        summary="Have the garbage collector look now",
        answer=models.CollectorRun,
        group="collector",
    ),
    Endpoint(
        path="/ledger/export",
        method="POST",
        call="export_ledger",
        summary="Bring what is settled by now to the lake; answered when it is there",
        answer=models.LedgerExport,
        group="ledger",
    ),
)
