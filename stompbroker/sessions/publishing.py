"""What the SENDs of one connection become.

Law: from a head to the topic it means, found once and remembered on the head; from bodies to messages in a batch.
Whether they may be published now is not asked here.

Hot path: `gather`, for all SENDs of one head at once. `make bench` (topic 1→1) and `tests/sessions/test_hot_path.py`
guard it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.delivery import parse_topic_name
from stompbroker.errors import InvalidDestination, PeerViolation
from stompbroker.message import Message, Origin
from stompbroker.sessions.header_values import truth
from stompbroker.sessions.lifetimes import read_lifetime
from stompbroker.sessions.unsupported_headers import refuse_unsupported_in_send
from stompbroker.stomp import Version, message_tail_template, render_passed_through

if TYPE_CHECKING:
    from stompbroker.delivery import Topic
    from stompbroker.sessions.batch import Batch
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import Head, SendRun

__all__ = ["Publishing", "SendPlan"]


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
    __slots__ = ("_around", "_client")

    def __init__(self, around: SessionContext, client: Client) -> None:
        self._around = around
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
            lifetime = read_lifetime(head.headers, self._around.clock.now_ns(), topic.policy.message_ttl_ms)
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
        return SendPlan(topic, message_tail_template(self._around.message_ids.prefix, passed_through), origin)

    def gather(self, run: SendRun, batch: Batch, now_ns: int) -> None:
        """Make each body a message on its topic's run."""
        plan = self.plan(run.head, run.receipt)
        template, origin = plan.tail_template, plan.origin
        message_ids = self._around.message_ids
        first = message_ids.next_number
        message_ids.next_number = first + len(run.bodies)
        messages = [
            Message(len(body), template % (number, len(body), body), origin, now_ns)
            for number, body in enumerate(run.bodies, first)
        ]
        if plan.topic in batch.publications:
            batch.publications[plan.topic] += messages
        else:
            batch.publications[plan.topic] = messages
        if run.receipts:
            batch.receipts.extend([receipt for receipt in run.receipts if receipt is not None])

    def _topic(self, head: Head) -> Topic:
        try:
            name = parse_topic_name(head.headers["destination"])
        except InvalidDestination as error:
            raise PeerViolation("invalid destination", str(error)) from None
        return self._around.registry.topic(name, self._around.clock.now_ns())
