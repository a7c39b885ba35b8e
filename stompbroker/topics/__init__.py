"""The synchronised stores that the actors share.

Law: all mutation is synchronous, so it is atomic between checkpoints; `async` only waits. That rule is the
synchronisation. Neighbours import from here only.
"""

from stompbroker.topics.consumer import Consumer, Credit
from stompbroker.topics.destination import Pattern, parse_pattern, parse_topic_name
from stompbroker.topics.journal import Journal, MemoryJournal
from stompbroker.topics.pattern_tree import PatternTree
from stompbroker.topics.policy import SlowSubscriber, TopicPolicies, TopicPolicy
from stompbroker.topics.reading import Reading
from stompbroker.topics.ready_queue import ReadyQueue
from stompbroker.topics.redeliveries import Redeliveries
from stompbroker.topics.registry import Registry
from stompbroker.topics.subscription import AckMode, Counters, Subscription
from stompbroker.topics.topic import Topic
from stompbroker.topics.unit import Answer, Unit, Verdict

__all__ = [
    "AckMode",
    "Answer",
    "Consumer",
    "Counters",
    "Credit",
    "Journal",
    "MemoryJournal",
    "Pattern",
    "PatternTree",
    "Reading",
    "ReadyQueue",
    "Redeliveries",
    "Registry",
    "SlowSubscriber",
    "Subscription",
    "Topic",
    "TopicPolicies",
    "TopicPolicy",
    "Unit",
    "Verdict",
    "parse_pattern",
    "parse_topic_name",
]
