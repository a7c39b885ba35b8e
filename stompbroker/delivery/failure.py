"""What is known of a message that has failed for a subscription and is not settled.

Law: values; the next one is computed from the one before, a refusal and the policy, and nothing is changed. So whoever
writes down what a transaction will do, and whoever does it, come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.ids import DeliveryNumber

if TYPE_CHECKING:
    from stompbroker.delivery.delivery_policy import DeliveryPolicy

__all__ = ["Failing", "Failure", "Refusal"]


class Refusal(NamedTuple):
    """A delivery has failed: what is known of that."""

    at_ns: int
    #: What the subscriber gave as its reason, or what we know instead.
    reason: str = ""
    #: How long the message is to wait; None leaves that to the policy.
    delay_ns: int | None = None
    #: Whether it is not to be tried again, whatever the policy says.
    is_final: bool = False
    #: Whether the subscriber has not said anything within its deadline: it still may.
    is_overdue: bool = False
    #: Whether its connection was lost over it.
    is_lost: bool = False

    @property
    def is_nack(self) -> bool:
        return not self.is_overdue and not self.is_lost


@final
class Failure:
    """
    Invariants:
        count >= 1; first_attempt_ns <= last_attempt_ns, both 0 if not known
    """

    __slots__ = (
        "count",
        "due_ns",
        "first_attempt_ns",
        "is_final",
        "is_overdue",
        "last_attempt_ns",
        "last_number",
        "nacks",
        "reason",
    )

    def __init__(
        self,
        count: int,
        due_ns: int,
        reason: str,
        *,
        first_attempt_ns: int = 0,
        last_attempt_ns: int = 0,
        is_final: bool = False,
        is_overdue: bool = False,
        nacks: int = 0,
    ) -> None:
        #: How many deliveries have failed, and how many of them because the subscriber said so.
        self.count = count
        self.nacks = nacks
        #: When it goes again, or is given up.
        self.due_ns = due_ns
        #: What was last said to be the reason.
        self.reason = reason
        #: When it was sent first, and last.
        self.first_attempt_ns = first_attempt_ns
        self.last_attempt_ns = last_attempt_ns
        self.is_final = is_final
        self.is_overdue = is_overdue
        #: The number of its latest delivery: an answer to an earlier one is late.
        self.last_number = DeliveryNumber(0)

    def is_used_up(self, policy: DeliveryPolicy) -> bool:
        """Whether it is not tried again."""
        return self.is_final or policy.is_used_up(self.count)


@final
class Failing:
    """What becomes of messages that are refused in one go, under one policy. Hot path of those who refuse everything:
    how long they wait is found out once for all that have failed as often."""

    __slots__ = ("_due_ns", "_jitter_seed", "_policy", "_refusal")

    def __init__(self, refusal: Refusal, policy: DeliveryPolicy, jitter_seed: int) -> None:
        self._refusal = refusal
        self._policy = policy
        self._jitter_seed = jitter_seed
        #: By how often it has failed.
        self._due_ns: dict[int, int] = {}

    def failure_after(self, before: Failure | None, *, first_sent_ns: int, sent_at_ns: int) -> Failure:
        """The failure of a message that was sent first at `first_sent_ns`, last at `sent_at_ns`, and has now been
        refused."""
        count = 1 if before is None else before.count + 1
        due_ns = self._due_ns.get(count)
        if due_ns is None:
            due_ns = self._due_ns[count] = self._due_after(count)
        refusal = self._refusal
        failure = Failure(
            count,
            due_ns,
            refusal.reason,
            first_attempt_ns=first_sent_ns,
            last_attempt_ns=sent_at_ns,
            is_final=refusal.is_final,
            is_overdue=refusal.is_overdue,
            nacks=(0 if before is None else before.nacks) + refusal.is_nack,
        )
        if before is not None:
            failure.last_number = before.last_number
        return failure

    def _due_after(self, count: int) -> int:
        """What is not tried again is given up at once."""
        at_ns, delay_ns = self._refusal.at_ns, self._refusal.delay_ns
        if self._refusal.is_final or self._policy.is_used_up(count):
            return at_ns
        return at_ns + (self._policy.delay_ns(count, self._jitter_seed) if delay_ns is None else delay_ns)
