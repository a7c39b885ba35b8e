"""The synchronised stores that the actors share.

Law: all mutation is synchronous, so it is atomic between checkpoints; `async` only waits. That rule is the
synchronisation. Neighbours import from here only.
"""

from stompbroker.topics.consumer import Consumer, Credit
from stompbroker.topics.delivery_policy import DeliveryPolicy, DeliveryWishes, WhenUsedUp
from stompbroker.topics.destination import Pattern, parse_pattern, parse_topic_name
from stompbroker.topics.identity import Identity, IdentityKind
from stompbroker.topics.journal import Gate, Journal, JournalStatistics, MemoryJournal, StoreState
from stompbroker.topics.pages import PageRequest, Pages
from stompbroker.topics.pattern_tree import PatternTree
from stompbroker.topics.policy import IdlePolicy, Retention, SlowSubscriber, TopicPolicies, TopicPolicy
from stompbroker.topics.reading import Failure, Reading
from stompbroker.topics.ready_queue import ReadyQueue
from stompbroker.topics.redeliveries import Redeliveries
from stompbroker.topics.registry import Registry
from stompbroker.topics.removing import removal
from stompbroker.topics.subscription import AckMode, Counters, Durability, Subscription
from stompbroker.topics.topic import Topic
from stompbroker.topics.unit import Answer, Decision, Lane, Unit, Verdict
from stompbroker.topics.unsaved import Unsaved

__all__ = [
    "AckMode",
    "Answer",
    "Consumer",
    "Counters",
    "Credit",
    "Decision",
    "DeliveryPolicy",
    "DeliveryWishes",
    "Durability",
    "Failure",
    "Gate",
    "Identity",
    "IdentityKind",
    "IdlePolicy",
    "Journal",
    "JournalStatistics",
    "Lane",
    "MemoryJournal",
    "PageRequest",
    "Pages",
    "Pattern",
    "PatternTree",
    "Reading",
    "ReadyQueue",
    "Redeliveries",
    "Registry",
    "Retention",
    "SlowSubscriber",
    "StoreState",
    "Subscription",
    "Topic",
    "TopicPolicies",
    "TopicPolicy",
    "Unit",
    "Unsaved",
    "Verdict",
    "WhenUsedUp",
    "parse_pattern",
    "parse_topic_name",
    "removal",
]
