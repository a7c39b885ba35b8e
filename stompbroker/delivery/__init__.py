"""The synchronised stores that the actors share.

Law: all mutation is synchronous, so it is atomic between checkpoints; `async` only waits. That rule is the
synchronisation. Neighbours import from here only.
"""

from stompbroker.delivery import answering, appending, collecting, sending, withdrawing
from stompbroker.delivery.accounting import Records, account_of
from stompbroker.delivery.browsing import Browsing
from stompbroker.delivery.consumer import Consumer, Credit, Part
from stompbroker.delivery.destination import (
    DEAD_LETTERS,
    QUEUE_PREFIX,
    DestinationKind,
    Pattern,
    PatternTree,
    key_of,
    parse_pattern,
    parse_shown_topic,
    parse_topic_name,
)
from stompbroker.delivery.identity import Durability, Identity, IdentityKind, queue_identity
from stompbroker.delivery.last_values import LastValue, LastValues
from stompbroker.delivery.pages import PageRequest, Pages
from stompbroker.delivery.policy import (
    DeliveryPolicy,
    DeliveryWishes,
    Failure,
    IdlePolicy,
    Refusal,
    Retention,
    SlowSubscriber,
    TopicPolicies,
    TopicPolicy,
    WhenUsedUp,
)
from stompbroker.delivery.reading import Reading, Waiting
from stompbroker.delivery.registry import Leaving, Registry
from stompbroker.delivery.retained import Mark, Replay
from stompbroker.delivery.sink import Particulars
from stompbroker.delivery.subscription import (
    COUNTER_NAMES,
    AckMode,
    Counters,
    ReadyQueue,
    Subscription,
)
from stompbroker.delivery.telling import Ended, Untold
from stompbroker.delivery.topic import Gate, Topic

__all__ = [
    "COUNTER_NAMES",
    "DEAD_LETTERS",
    "QUEUE_PREFIX",
    "AckMode",
    "Browsing",
    "Consumer",
    "Counters",
    "Credit",
    "DeliveryPolicy",
    "DeliveryWishes",
    "DestinationKind",
    "Durability",
    "Ended",
    "Failure",
    "Gate",
    "Identity",
    "IdentityKind",
    "IdlePolicy",
    "LastValue",
    "LastValues",
    "Leaving",
    "Mark",
    "PageRequest",
    "Pages",
    "Part",
    "Particulars",
    "Pattern",
    "PatternTree",
    "Reading",
    "ReadyQueue",
    "Records",
    "Refusal",
    "Registry",
    "Replay",
    "Retention",
    "SlowSubscriber",
    "Subscription",
    "Topic",
    "TopicPolicies",
    "TopicPolicy",
    "Untold",
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
    "queue_identity",
    "sending",
    "withdrawing",
]
