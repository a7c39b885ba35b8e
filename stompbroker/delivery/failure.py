"""What is known of a message that has failed for a subscription and is not settled.

Law: values. The next failure is computed from the one before, a refusal and the policy: here is the back-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.ids import DeliveryNumber

if TYPE_CHECKING:
    from stompbroker.delivery.delivery_policy import DeliveryPolicy

NO_NUMBER: Final = DeliveryNumber(0)


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

    @property
    def is_nack(self) -> bool:
        return not self.is_overdue and not self.is_lost


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
    #: The number of its latest delivery: an answer to an earlier one is late.
    last_number: DeliveryNumber = NO_NUMBER

    def is_used_up(self, policy: DeliveryPolicy) -> bool:
        """Whether it is not tried again."""
        return self.is_final or policy.is_used_up(self.count)


@final
class Failing:
    """Computes the failures of messages refused together. Hot path of clients that refuse everything: the wait is
    computed once for all that have failed as often."""

    __slots__ = ("_due_ns", "_jitter_seed", "_policy", "_refusal")

    def __init__(self, refusal: Refusal, policy: DeliveryPolicy, jitter_seed: int) -> None:
        self._refusal = refusal
        self._policy = policy
        self._jitter_seed = jitter_seed
        #: By how often it has failed.
        self._due_ns: dict[int, int] = {}

    def failure_after(self, before: Failure | None, *, first_sent_ns: int, sent_at_ns: int) -> Failure:
        """Of a message that was sent first at `first_sent_ns`, last at `sent_at_ns`, and has now been refused."""
        count = 1 if before is None else before.count + 1
        due_ns = self._due_ns.get(count)
        if due_ns is None:
            due_ns = self._due_ns[count] = self._due_after(count)
        refusal = self._refusal
        nacks, last_number = (0, NO_NUMBER) if before is None else (before.nacks, before.last_number)
        return Failure(
            count,
            due_ns,
            refusal.reason,
            first_sent_ns,
            sent_at_ns,
            refusal.is_final,
            refusal.is_overdue,
            nacks + refusal.is_nack,
            last_number,
        )

    def _due_after(self, count: int) -> int:
        """What is not tried again is given up at once."""
        at_ns, delay_ns = self._refusal.at_ns, self._refusal.delay_ns
        if self._refusal.is_final or self._policy.is_used_up(count):
            return at_ns
        return at_ns + (self._policy.delay_ns(count, self._jitter_seed) if delay_ns is None else delay_ns)
