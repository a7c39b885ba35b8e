"""What a topic may keep, how often a message is tried, and what happens to subscribers that are slow or absent.

Law: values and arithmetic. A policy comes from the settings of the topic, and a subscriber's wishes are laid over it.
The next failure of a message is computed from the one before, a refusal and the policy: here is the back-off.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from stompbroker.delivery.destination import DestinationKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.delivery.destination import Pattern

_NS_PER_MS: Final = 1_000_000
#: Odd factors that spread seeds and attempts over 32 bits.
_SPREAD_BY_SEED, _SPREAD_BY_ATTEMPT, _SPREAD_BITS = 0x9E3779B1, 0x85EBCA77, 32


@final
class WhenUsedUp(Enum):
    """What becomes of a message that has failed as often as it may."""

    DEAD_LETTER = "dead-letter"
    DISCARD = "discard"
    #: The subscription goes, not the message.
    EVICT = "evict"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    #: The wait after the first failure; each further one is `multiplier` times as long, up to `max_delay_ms`.
    first_delay_ms: int = 1_000
    multiplier: float = 2.0
    max_delay_ms: int = 300_000
    #: The part of a wait that may be cut off, so that subscriptions do not all retry at once.
    jitter: float = 0.1
    #: Deliveries in all; 0 means without end.
    max_attempts: int = 10
    #: How long a message may be in flight before that counts as a failure; 0 means for ever.
    ack_deadline_ms: int = 0
    when_used_up: WhenUsedUp = WhenUsedUp.DEAD_LETTER

    def is_used_up(self, failures: int) -> bool:
        """Whether a message that has failed so often is not tried again."""
        return 0 < self.max_attempts <= failures

    def delay_ns(self, failures: int, seed: int) -> int:
        """How long a message waits after its `failures`-th failure, for the subscription with that seed.

        The jitter depends on subscription and attempt alone, so messages that failed as often keep their order.
        """
        delay_ms = min(self.max_delay_ms, self.first_delay_ms * self.multiplier ** min(failures - 1, 64))
        mixed = (seed * _SPREAD_BY_SEED + failures * _SPREAD_BY_ATTEMPT) % 2**_SPREAD_BITS
        return int(delay_ms * (1 - self.jitter * mixed / 2**_SPREAD_BITS) * _NS_PER_MS)

    @property
    def ack_deadline_ns(self) -> int:
        return self.ack_deadline_ms * _NS_PER_MS


@final
@dataclass(frozen=True, slots=True)
class DeliveryWishes:
    """Fields of the topic's `DeliveryPolicy` that a subscriber wants otherwise, by name; checked."""

    changed: Mapping[str, Any]

    def laid_over(self, policy: DeliveryPolicy) -> DeliveryPolicy:
        return replace(policy, **self.changed) if self.changed else policy

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value.value if isinstance(value, Enum) else value for name, value in self.changed.items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DeliveryWishes:
        """The reverse of `as_plain`, without fields that this release does not know."""
        known = {field.name for field in fields(DeliveryPolicy)}
        changed = {name: value for name, value in plain.items() if name in known}
        if "when_used_up" in changed:
            changed["when_used_up"] = WhenUsedUp(changed["when_used_up"])
        return cls(changed)


class Refusal(NamedTuple):
    """Why a delivery has failed."""

    at_ns: int
    #: As the subscriber gave it, or what we know instead.
    reason: str = ""
    #: How long the message is to wait; None leaves that to the policy.
    delay_ns: int | None = None
    #: Whether it is not to be tried again, whatever the policy says.
    is_final: bool = False
    #: Whether the subscriber missed its deadline; it may still answer.
    is_overdue: bool = False
    #: Whether its connection was lost over it.
    is_lost: bool = False


@final
@dataclass(slots=True, eq=False)
class Failure:
    """
    Invariants:
        count >= 1; first_attempt_ns <= last_attempt_ns, both 0 if not known
    """

    #: How many deliveries have failed.
    count: int
    #: When it goes again, or is given up.
    due_ns: int
    #: The last reason that was given.
    reason: str
    #: When it was sent first, and last.
    first_attempt_ns: int = 0
    last_attempt_ns: int = 0
    is_final: bool = False
    is_overdue: bool = False
    #: How many of the failures were NACKs.
    nacks: int = 0
    #: The number of its latest delivery, or 0: an answer to an earlier one is late.
    last_number: int = 0
    #: A weak reference to the member of a group that failed, so that another one gets it next.
    failed_with: Callable[[], object] | None = None
    #: Its name in the ledger, which needs it when the member may be gone. A restart forgets both.
    member: str | None = None
    #: Whether the store may have a row of it, or of the one before it.
    is_stored: bool = False

    def is_used_up(self, policy: DeliveryPolicy) -> bool:
        return self.is_final or policy.is_used_up(self.count)


@final
@dataclass(slots=True, eq=False)
class Failing:
    """Computes the failures of messages refused together. Hot path of clients that refuse everything: the wait is
    computed once for all that have failed as often."""

    _refusal: Refusal
    _policy: DeliveryPolicy
    _jitter_seed: int
    #: By how often it has failed.
    _due_ns: dict[int, int] = field(default_factory=dict)

    def failure_after(self, before: Failure | None, *, first_sent_ns: int, sent_at_ns: int) -> Failure:
        """Of a message that was sent first at `first_sent_ns`, last at `sent_at_ns`, and has now been refused."""
        count = 1 if before is None else before.count + 1
        due_ns = self._due_ns.get(count)
        if due_ns is None:
            due_ns = self._due_ns[count] = self._due_after(count)
        refusal = self._refusal
        nacks = last_number = 0
        is_stored = False
        if before is not None:
            nacks, last_number, is_stored = before.nacks, before.last_number, before.is_stored
        return Failure(
            count,
            due_ns,
            refusal.reason,
            first_sent_ns,
            sent_at_ns,
            refusal.is_final,
            refusal.is_overdue,
            nacks + (not refusal.is_overdue and not refusal.is_lost),
            last_number,
            is_stored=is_stored,
        )

    def _due_after(self, count: int) -> int:
        """What is not tried again is given up at once."""
        at_ns, delay_ns = self._refusal.at_ns, self._refusal.delay_ns
        if self._refusal.is_final or self._policy.is_used_up(count):
            return at_ns
        return at_ns + (self._policy.delay_ns(count, self._jitter_seed) if delay_ns is None else delay_ns)


@final
class SlowSubscriber(Enum):
    """What to do when a topic's window is full of messages that a subscriber has not been sent yet."""

    BLOCK = "block"
    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    DISCONNECT = "disconnect"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept for later subscribers although everybody has settled it: what is within every bound that is not 0.
    All 0 means nothing."""

    age_s: float = 0.0
    max_bytes: int = 0
    max_messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.age_s or self.max_bytes or self.max_messages)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePolicy:
    """What happens to a durable subscription that nobody attaches to."""

    #: When it is warned of, and when it is deleted; 0 means never.
    warn_after_s: float = 604_800.0
    delete_after_s: float = 0.0
    #: Whether it is deleted also when there is something it has not settled, which is then lost to it.
    deletes_unsettled: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    slow_subscriber: SlowSubscriber = SlowSubscriber.BLOCK
    #: The window: how much may be kept that is not yet sent to somebody.
    window_bytes: int = 8 * 1024 * 1024
    window_messages: int = 50_000
    #: How long publishers are held back without progress before the subscription that pins the window is disconnected.
    block_timeout_s: float = 30.0
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    #: How long a message lives whose publisher does not say; 0 means for ever.
    message_ttl_ms: int = 0
    retention: Retention = field(default_factory=Retention)
    #: Whether each message becomes the topic's last value, unless its publisher says otherwise.
    last_value: bool = False
    #: For durable subscriptions whose pattern a table's pattern matches.
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    #: Of a queue: how many messages it may hold, 0 for any number; and whether it is there also if nobody uses it.
    queue_max_messages: int = 0
    is_declared: bool = False


@final
@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The default, one for topics of dead letters, and overrides by pattern: the first one that matches counts."""

    default: TopicPolicy
    overrides: tuple[tuple[Pattern, TopicPolicy], ...] = ()
    dead_letters: TopicPolicy | None = None
    #: Those of some queues, by name.
    queues: Mapping[str, TopicPolicy] = field(default_factory=dict)

    def find(self, name: Pattern) -> TopicPolicy:
        """Nothing in a queue is dropped because its consumers are slow, and no failure deletes it. What is temporary
        ends with its connection, so nothing of it is retained."""
        if name.kind is DestinationKind.TEMPORARY:
            return replace(self.default, retention=Retention())
        if name.kind is not DestinationKind.QUEUE:
            return self._find(name)
        found = self.queues.get(name.name) or self._find(name)
        delivery = found.delivery
        if delivery.when_used_up is WhenUsedUp.EVICT:
            delivery = replace(delivery, when_used_up=WhenUsedUp.DEAD_LETTER)
        return replace(found, slow_subscriber=SlowSubscriber.BLOCK, delivery=delivery)

    def _find(self, name: Pattern) -> TopicPolicy:
        for pattern, policy in self.overrides:
            if pattern.matches(name):
                return policy
        if self.dead_letters is not None and name.is_of_dead_letters:
            return self.dead_letters
        return self.default
