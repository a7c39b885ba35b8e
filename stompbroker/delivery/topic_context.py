"""What all topics of a broker share.

Law: one value, built once by the registry and handed to each topic. It has no behaviour; each part keeps its own law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.delivery.delivery_times import DeliveryTimes
    from stompbroker.delivery.pages import Pages
    from stompbroker.delivery.pattern_tree import PatternTree
    from stompbroker.delivery.records import Records
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.timetable import Timetable, Unanswered, Waiting
    from stompbroker.delivery.topic import Topic
    from stompbroker.delivery.unsaved import Unsaved
    from stompbroker.memory_budget import MemoryBudget

__all__ = ["TopicContext"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContext:
    budget: MemoryBudget
    #: Wildcard subscriptions that are served, durable or not.
    patterns: PatternTree[Subscription]
    #: All durable subscriptions, exact ones too: what matches one is stored.
    durable: PatternTree[Subscription]
    #: Topics whose publishers are held back.
    blocked: dict[Topic, None]
    pages: Pages
    unsaved: Unsaved
    #: Messages that were set aside, and deliveries with a deadline.
    redeliveries: Timetable[Waiting]
    deadlines: Timetable[Unanswered]
    times: DeliveryTimes
    #: What the ledger gets to know; None without one.
    records: Records | None
    #: Whether anything outlives the process: otherwise nothing can be retained.
    can_store: bool
