"""From the SENDs of one connection to messages.

Law: the topic of a head is found once and remembered on the head; bodies become messages in a unit. The caller checks
whether they may be published now. How long a message lives is said by its publisher:

    expires       milliseconds since 1970: the end itself (ActiveMQ, JMS)
    ttl           milliseconds from now
    expiration    the same (RabbitMQ)

0 means never in each of them, in spite of the topic's default. Where a frame has several, the earliest end counts, and
never is later than any end; so is what lies beyond the year 2262.

Hot path: `gather`, for all SENDs of one head at once. `make bench` (topic 1→1) and `tests/sessions/test_hot_path.py`
guard it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery import parse_topic_name
from stompbroker.errors import InvalidDestination, PeerViolation
from stompbroker.message import Message, Origin
from stompbroker.sessions.header_values import truth, whole_number
from stompbroker.sessions.unsupported_headers import refuse_unsupported_in_send
from stompbroker.stomp import Version, message_tail_template, render_passed_through

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Topic
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.unit_builder import UnitBuilder
    from stompbroker.stomp import Head, SendRun

__all__ = ["Lifetime", "Publishing", "SendPlan", "read_lifetime"]

_ABSOLUTE: Final = "expires"
_RELATIVE: Final = ("ttl", "expiration")

_NS_PER_MS: Final = 1_000_000
#: 16 digits: the year 9999 and Java's dates far beyond it are some people's "never", not a mistake.
_MAX_MS: Final = 10**16 - 1
#: Instants are kept as nanoseconds since 1970 in 64 bits, which ends in the year 2262.
_LAST_NS: Final = 2**63 - 1


class Lifetime(NamedTuple):
    """Where there are two ends, the earlier one counts, message by message; none means for ever."""

    #: From the moment it is published.
    lifetime_ns: int | None = None
    #: Since 1970.
    expires_at_ns: int | None = None


@final
class SendPlan:
    """What a SEND's header block comes to; kept on the head, which all frames with the same block share."""

    __slots__ = ("origin", "tail_template", "topic")

    def __init__(self, topic: Topic, tail_template: bytes, origin: Origin) -> None:
        self.topic = topic
        self.tail_template = tail_template
        self.origin = origin


@final
class Publishing:
    __slots__ = ("_client", "_context")

    def __init__(self, context: SessionContext, client: Client) -> None:
        self._context = context
        self._client = client

    def plan(self, head: Head, receipt: str | None) -> SendPlan:
        """What this head comes to. Raises PeerViolation, for the frame that asked for `receipt`."""
        plan = head.plan
        if not isinstance(plan, SendPlan) or plan.topic.is_removed:
            plan = self._make_plan(head, receipt)
            head.plan = plan
        return plan

    def _make_plan(self, head: Head, receipt: str | None) -> SendPlan:
        try:
            refuse_unsupported_in_send(head.headers)
            is_persistent = truth("persistent", head.headers.get("persistent", "true"))
            topic = self._topic(head)
            lifetime = read_lifetime(head.headers, self._context.clock.now_ns(), topic.policy.message_ttl_ms)
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

    def _topic(self, head: Head) -> Topic:
        try:
            name = parse_topic_name(head.headers["destination"])
        except InvalidDestination as error:
            raise PeerViolation("invalid destination", str(error)) from None
        return self._context.registry.topic(name, self._context.clock.now_ns())


def read_lifetime(headers: Mapping[str, str], now_ns: int, default_ms: int) -> Lifetime:
    """What a SEND says, or else `default_ms`, where 0 means for ever. `now_ns` is since 1970. Raises PeerViolation.

    An end that has passed already is told as it is.
    """
    absolute = [
        _NS_PER_MS * _milliseconds(header, headers[header], "since 1970")
        for header in (_ABSOLUTE,)
        if header in headers
    ]
    relative = [
        _NS_PER_MS * _milliseconds(header, headers[header], "from now") for header in _RELATIVE if header in headers
    ]
    if not absolute and not relative:
        return Lifetime(default_ms * _NS_PER_MS) if default_ms else Lifetime()
    return Lifetime(
        min((lifetime_ns for lifetime_ns in relative if lifetime_ns and now_ns + lifetime_ns < _LAST_NS), default=None),
        min((at_ns for at_ns in absolute if at_ns and at_ns < _LAST_NS), default=None),
    )


def _milliseconds(header: str, value: str, since: str) -> int:
    return whole_number(header, value, 0, _MAX_MS, f"a whole number of milliseconds {since} (0 means never)")
