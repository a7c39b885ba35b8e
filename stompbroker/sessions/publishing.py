"""From the SENDs of one connection to messages.

Law: the topic of a head is found once and remembered on the head; bodies become messages in a unit. The caller checks
whether they may be published now. A publisher says how long a message lives:

    expires       milliseconds since 1970: the end itself (ActiveMQ, JMS)
    ttl           milliseconds from now
    expiration    the same (RabbitMQ)

0 means never in each of them, in spite of the topic's default. If a frame has several, the earliest end counts. An end
after the year 2262 means never.

Hot path: `gather`, for all SENDs of one head at once. `make bench` (topic 1→1) and `tests/sessions/test_hot_path.py`
guard it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery import parse_topic_name
from stompbroker.errors import PeerViolation
from stompbroker.message import Message, Origin
from stompbroker.sessions.headers import UNSUPPORTED_IN_SEND, read_destination, refuse_unsupported, truth, whole_number
from stompbroker.stomp import Version, message_tail_template, render_passed_through

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stompbroker.delivery import Topic
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.gathering import UnitBuilder
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import Head, SendRun

_NS_PER_MS: Final = 1_000_000
#: 16 digits: some people write "never" as the year 9999, or as one of Java's dates far beyond it.
_MAX_MS: Final = 10**16 - 1
#: Times are kept as nanoseconds since 1970 in 64 bits, which ends in the year 2262.
_LAST_NS: Final = 2**63 - 1


class Lifetime(NamedTuple):
    """If both are set, the earlier end counts for each message; None means for ever."""

    #: From the moment it is published.
    lifetime_ns: int | None = None
    #: Since 1970.
    expires_at_ns: int | None = None


@final
@dataclass(slots=True, eq=False)
class SendPlan:
    """What follows from a SEND's header block; kept on the head, which all frames with the same block share."""

    topic: Topic
    tail_template: bytes
    origin: Origin


@final
@dataclass(slots=True, eq=False)
class Publishing:
    _context: SessionContext
    _client: Client

    def plan(self, head: Head, receipt: str | None) -> SendPlan:
        """Made once for a head. Raises PeerViolation, for the frame that asked for `receipt`."""
        plan = head.plan
        if not isinstance(plan, SendPlan) or plan.topic.is_removed:
            plan = self._make_plan(head, receipt)
            head.plan = plan
        return plan

    def _make_plan(self, head: Head, receipt: str | None) -> SendPlan:
        try:
            refuse_unsupported(head.headers, UNSUPPORTED_IN_SEND)
            is_persistent = truth("persistent", head.headers.get("persistent", "true"))
            now_ns = self._context.clock.now_ns()
            name = read_destination(head.headers["destination"], parse_topic_name)
            topic = self._context.registry.topic(name, now_ns)
            lifetime = read_lifetime(head.headers, now_ns, topic.policy.message_ttl_ms)
        except PeerViolation as violation:
            violation.receipt = receipt
            raise
        passed_through = render_passed_through(head.headers, Version.V1_2)
        origin = Origin(
            self._client.name,
            is_plain=b"\\r" not in passed_through,
            is_persistent=is_persistent,
            lifetime_ns=lifetime.lifetime_ns,
            expires_at_ns=lifetime.expires_at_ns,
        )
        self._client.note_publishing(topic)
        if origin.can_expire:
            topic.is_choosy = True
        return SendPlan(topic, message_tail_template(self._context.message_ids.prefix, passed_through), origin)

    def gather(self, run: SendRun, unit: UnitBuilder, now_ns: int) -> None:
        """Make each body a message on its topic's run."""
        plan = self.plan(run.head, run.receipt)
        template, origin = plan.tail_template, plan.origin
        message_ids = self._context.message_ids
        first = message_ids.next_number
        message_ids.next_number = first + len(run.bodies)
        messages = [
            Message(len(body), template % (number, len(body), body), origin, now_ns)
            for number, body in enumerate(run.bodies, first)
        ]
        if plan.topic in unit.publications:
            unit.publications[plan.topic] += messages
        else:
            unit.publications[plan.topic] = messages
        if run.receipts:
            unit.receipts.extend([receipt for receipt in run.receipts if receipt is not None])


def read_lifetime(headers: Mapping[str, str], now_ns: int, default_ms: int) -> Lifetime:
    """What a SEND says, or else `default_ms`, where 0 means for ever. Raises PeerViolation."""
    relative = _nanoseconds(headers, ("ttl", "expiration"), "from now")
    absolute = _nanoseconds(headers, ("expires",), "since 1970")
    if not absolute and not relative:
        return Lifetime(default_ms * _NS_PER_MS) if default_ms else Lifetime()
    return Lifetime(
        min((lifetime_ns for lifetime_ns in relative if lifetime_ns and now_ns + lifetime_ns < _LAST_NS), default=None),
        min((at_ns for at_ns in absolute if at_ns and at_ns < _LAST_NS), default=None),
    )


def _nanoseconds(headers: Mapping[str, str], names: Sequence[str], since: str) -> list[int]:
    noun = f"a whole number of milliseconds {since} (0 means never)"
    return [_NS_PER_MS * whole_number(name, headers[name], 0, _MAX_MS, noun) for name in names if name in headers]
