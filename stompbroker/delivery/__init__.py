"""The synchronised stores that the actors share.

Law: all mutation is synchronous, so it is atomic between checkpoints; `async` only waits. That rule is the
synchronisation. Neighbours import from here only.
"""

from stompbroker.delivery import answering, appending, collecting, redelivery, sending, withdrawing
from stompbroker.delivery.accounting import account_of
from stompbroker.delivery.consumer import Consumer, Credit, Unanswered
from stompbroker.delivery.delivery_policy import DeliveryPolicy, DeliveryWishes, WhenUsedUp
from stompbroker.delivery.destination import (
    DEAD_LETTERS,
    DestinationKind,
    Pattern,
    key_of,
    parse_pattern,
    parse_shown_topic,
    parse_topic_name,
)
from stompbroker.delivery.failure import Failure, Refusal
from stompbroker.delivery.gate import Gate
from stompbroker.delivery.identity import Identity, IdentityKind
from stompbroker.delivery.pages import PageRequest, Pages
from stompbroker.delivery.pattern_tree import PatternTree
from stompbroker.delivery.policy import IdlePolicy, Retention, SlowSubscriber, TopicPolicies, TopicPolicy
from stompbroker.delivery.queues import ReadyQueue
from stompbroker.delivery.reading import Reading, Waiting
from stompbroker.delivery.records import Records
from stompbroker.delivery.registry import Leaving, Registry
from stompbroker.delivery.replay import Replay
from stompbroker.delivery.retained import Mark
from stompbroker.delivery.sent_runs import Part
from stompbroker.delivery.sink import Deliveries, Sink
from stompbroker.delivery.subscription import AckMode, Counters, Durability, Subscription
from stompbroker.delivery.timetable import Timetable
from stompbroker.delivery.topic import Topic
from stompbroker.delivery.unsaved import Unsaved

__all__ = [
    "DEAD_LETTERS",
    "AckMode",
    "Consumer",
    "Counters",
    "Credit",
    "Deliveries",
    "DeliveryPolicy",
    "DeliveryWishes",
    "DestinationKind",
    "Durability",
    "Failure",
    "Gate",
    "Identity",
    "IdentityKind",
    "IdlePolicy",
    "Leaving",
    "Mark",
    "PageRequest",
    "Pages",
    "Part",
    "Pattern",
    "PatternTree",
    "Reading",
    "ReadyQueue",
    "Records",
    "Refusal",
    "Registry",
    "Replay",
    "Retention",
    "Sink",
    "SlowSubscriber",
    "Subscription",
    "Timetable",
    "Topic",
    "TopicPolicies",
    "TopicPolicy",
    "Unanswered",
    "Unsaved",
    "Waiting",
    "WhenUsedUp",
    "account_of",
    "answering",
    "appending",
    "collecting",
    "key_of",
    "parse_pattern",
    "parse_shown_topic",
    "parse_topic_name",
    "redelivery",
    "sending",
    "withdrawing",
]
