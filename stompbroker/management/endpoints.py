"""Everything that can be asked over HTTP, as one table.

Law: routes, the API's document and its page are made from this table and the methods of `control` that it names: their
parameters, and the first line of their docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.control import METHODS
from stompbroker.management import models

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from stompbroker.control import Param

#: For the command line only: exact counts cost every time, and a browser does not count before it moves letters.
_NOT_OVER_HTTP: Final = frozenset({"exact", "up_to"})


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    #: The method of `control`.
    call: str
    answer: type[BaseModel]

    @property
    def summary(self) -> str:
        return (METHODS[self.call].function.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def in_path(self) -> Mapping[str, Param]:
        return {name: param for name, param in METHODS[self.call].params.items() if f"{{{name}}}" in self.path}

    @property
    def in_query(self) -> Mapping[str, Param]:
        return self._not_in_path() if self.method == "GET" else {}

    @property
    def in_body(self) -> Mapping[str, Param]:
        """Fields of a JSON object."""
        return {} if self.method == "GET" else self._not_in_path()

    def _not_in_path(self) -> Mapping[str, Param]:
        without = self.in_path.keys() | _NOT_OVER_HTTP
        return {name: param for name, param in METHODS[self.call].params.items() if name not in without}

    @property
    def group(self) -> str:
        """Under which title it is documented."""
        return "broker" if self.path == "/overview" else self.path.split("/")[1].replace("-", " ")


ENDPOINTS: Final = (
    Endpoint("GET", "/overview", "overview", models.Overview),
    Endpoint("GET", "/topics", "topics", models.Topics),
    Endpoint("GET", "/topics/{name}", "topic", models.TopicDetails),
    Endpoint("GET", "/topics/{topic}/messages/{message_id}", "trace", models.Trace),
    Endpoint("GET", "/subscriptions", "subscriptions", models.Subscriptions),
    Endpoint("GET", "/subscriptions/{id}", "subscription", models.SubscriptionDetails),
    Endpoint("DELETE", "/subscriptions/{id}", "remove_subscription", models.RemovedSubscription),
    Endpoint("POST", "/subscriptions/{id}/pause", "pause_subscription", models.Subscription),
    Endpoint("POST", "/subscriptions/{id}/resume", "resume_subscription", models.Subscription),
    Endpoint("POST", "/subscriptions/{id}/move", "move_subscription", models.MovedSubscription),
    Endpoint("GET", "/connections", "connections", models.Connections),
    Endpoint("GET", "/connections/{id}", "connection", models.Connection),
    Endpoint("DELETE", "/connections/{id}", "close_connection", models.Connection),
    Endpoint("GET", "/dead-letters", "dead_letter_topics", models.DeadLetterTopics),
    Endpoint("GET", "/dead-letters/{topic}", "dead_letters", models.DeadLetters),
    Endpoint("GET", "/dead-letters/{topic}/{offset}", "dead_letter", models.DeadLetter),
    Endpoint("POST", "/dead-letters/{topic}/redrive", "redrive_dead_letters", models.Redriven),
    Endpoint("POST", "/dead-letters/{topic}/purge", "purge_dead_letters", models.Purged),
    Endpoint("GET", "/collector", "explain_collection", models.Collection),
    Endpoint("POST", "/collector/run", "run_collector", models.CollectorRun),
    Endpoint("POST", "/ledger/export", "export_ledger", models.LedgerExport),
)
