"""The synchronised stores that the actors share.

Law: all mutation is synchronous, so it is atomic between checkpoints; `async` only waits. That rule is the
synchronisation. Neighbours import from here only.
"""

from stompbroker.topics.accounting import account_of, party_of
from stompbroker.topics.consumer import Consumer, Credit
from stompbroker.topics.dead_letters import DeadLetters
from stompbroker.topics.delivery_policy import DeliveryPolicy, DeliveryWishes, WhenUsedUp
from stompbroker.topics.destination import DEAD_LETTERS, Pattern, parse_pattern, parse_shown_topic, parse_topic_name
from stompbroker.topics.dispatch import Dispatch
from stompbroker.topics.effects import Effect, SetAside, SettledDeliveries
from stompbroker.topics.failure import Failure, Refusal
from stompbroker.topics.identity import Identity, IdentityKind
from stompbroker.topics.idle_subscriptions import IdleSubscriptions
from stompbroker.topics.journal import Gate, Journal, JournalStatistics, MemoryJournal, StoreState
from stompbroker.topics.letters import Provenance, provenance_of, redriven
from stompbroker.topics.pages import PageRequest, Pages
from stompbroker.topics.pattern_tree import PatternTree
from stompbroker.topics.policy import IdlePolicy, Retention, SlowSubscriber, TopicPolicies, TopicPolicy
from stompbroker.topics.reading import Reading
from stompbroker.topics.ready_queue import ReadyQueue
from stompbroker.topics.records import Records
from stompbroker.topics.registry import Leaving, Registry
from stompbroker.topics.removing import removal
from stompbroker.topics.replay import Replay
from stompbroker.topics.retained import Mark
from stompbroker.topics.subscription import AckMode, Counters, Durability, Subscription
from stompbroker.topics.timetable import Timetable, Unanswered, Waiting
from stompbroker.topics.topic import Topic
from stompbroker.topics.unit import Answer, Decision, Lane, Unit, Verdict
from stompbroker.topics.unsaved import Unsaved

__all__ = [
    "DEAD_LETTERS",
    "AckMode",
    "Answer",
    "Consumer",
    "Counters",
    "Credit",
    "DeadLetters",
    "Decision",
    "DeliveryPolicy",
    "DeliveryWishes",
    "Dispatch",
    "Durability",
    "Effect",
    "Failure",
    "Gate",
    "Identity",
    "IdentityKind",
    "IdlePolicy",
    "IdleSubscriptions",
    "Journal",
    "JournalStatistics",
    "Lane",
    "Leaving",
    "Mark",
    "MemoryJournal",
    "PageRequest",
    "Pages",
    "Pattern",
    "PatternTree",
    "Provenance",
    "Reading",
    "ReadyQueue",
    "Records",
    "Refusal",
    "Registry",
    "Replay",
    "Retention",
    "SetAside",
    "SettledDeliveries",
    "SlowSubscriber",
    "StoreState",
    "Subscription",
    "Timetable",
    "Topic",
    "TopicPolicies",
    "TopicPolicy",
    "Unanswered",
    "Unit",
    "Unsaved",
    "Verdict",
    "Waiting",
    "WhenUsedUp",
    "account_of",
    "parse_pattern",
    "parse_shown_topic",
    "parse_topic_name",
    "party_of",
    "provenance_of",
    "redriven",
    "removal",
]
