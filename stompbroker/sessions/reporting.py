"""What publishers that ask are told: who will get a message, and that nobody will.

Law: SENDs in a row that ask are a unit of their own. Their receivers are counted in the step that appends them, so
nobody comes or goes in between. A message that nobody gets is sent to its `reply-to` as a message of the broker: it
asks nothing, so it is never returned itself, and `no-local` does not keep it from its publisher. The RECEIPT of its
SEND follows when that is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes import Appended, Unit
from stompbroker.delivery import appending
from stompbroker.errors import PeerViolation
from stompbroker.ids import ConnectionId, Offset
from stompbroker.message import Message, Origin
from stompbroker.sessions.gathering import UnitBuilder
from stompbroker.sessions.publishing import read_lifetime
from stompbroker.stomp import message_tail, render_frame, render_headers, tail_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.changes import Lane
    from stompbroker.delivery import Pattern
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.publishing import Publishing, Question
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import SendRun

#: Headers of a message that a returned one has of its own.
_OWN: Final = frozenset({"message-id", "content-length", "destination"})
#: No connection has this number: what the broker sends is nobody's own.
_BROKER: Final = ConnectionId(0)


@final
@dataclass(slots=True, eq=False)
class Reporting:
    _context: SessionContext
    _client: Client
    _outbox: Outbox
    _lane: Lane

    def send(self, run: SendRun, question: Question, publishing: Publishing, now_ns: int) -> None:
        """Publish what asks. Raises PeerViolation for a SEND that wants a report and no receipt; those before it have
        been published by then."""
        receipts = run.receipts or [None] * len(run.bodies)
        known = receipts.index(None) if question.is_reported and None in receipts else len(receipts)
        is_wrong = known < len(receipts)
        del run.bodies[known:], receipts[known:]
        if run.bodies:
            gathered = UnitBuilder()
            publishing.gather(run, gathered, now_ns)
            ((topic, messages),) = gathered.publications.items()
            appended = Appended(topic, messages)
            self._submit(Unit([appended], then=partial(self._tell, appended, question, receipts), lane=self._lane))
        if is_wrong:
            raise PeerViolation(
                "report:true without receipt",
                "the report comes with the RECEIPT: add a receipt header, or leave report out",
            )

    def _tell(self, appended: Appended, question: Question, receipts: Sequence[str | None]) -> None:
        """The messages have just been appended."""
        topic, messages = appended.topic, appended.messages
        first = Offset(topic.log.end_offset - len(messages))
        is_stored = appended.first is not None and messages[0].origin.is_persistent
        # They have one head and come together, so whoever gets the first gets all of them.
        audience = appending.audience(topic, first, messages[0], is_stored=is_stored)
        told: list[tuple[str, str]] = []
        if question.is_reported:
            told = [
                ("matched", str(audience.matched)),
                ("matched-transient", str(audience.transient)),
                ("stored", "true" if is_stored else "false"),
            ]
        give = partial(self._give_receipts, receipts, told, first)
        if not question.is_mandatory or any(audience):
            give()
        elif question.reply_to is not None:
            self._return(messages, question.reply_to, question.reply_to_text, give)
        else:
            self._client.disconnect(
                PeerViolation(
                    "nobody gets a message with mandatory:true",
                    f"{topic.destination} has no subscriber that would get it; start one first, add reply-to to get "
                    "such messages back, or leave mandatory out",
                    receipt=receipts[0],
                )
            )

    def _give_receipts(self, receipts: Sequence[str | None], told: list[tuple[str, str]], first: Offset) -> None:
        version, after_frame = self._client.version, self._context.settings.after_frame
        frames: list[bytes] = []
        for offset, receipt in enumerate(receipts, first):
            if receipt is not None:
                report = [*told, ("offset", str(offset))] if told else []
                frames += [render_frame("RECEIPT", [("receipt-id", receipt), *report], version=version), after_frame]
        if frames:
            self._outbox.put(b"".join(frames))

    def _return(self, messages: Sequence[Message], to: Pattern, to_text: str, then: Callable[[], None]) -> None:
        now_ns = self._context.clock.now_ns()
        try:
            topic = self._context.queues.topic(to, now_ns)
        except PeerViolation as violation:  # there are too many topics
            self._client.disconnect(violation)
            return
        said = dict(tail_headers(messages[0].tail))
        headers = {"destination": to_text, "returned": "no-subscriber", "returned-destination": said["destination"]}
        headers |= {name: value for name, value in said.items() if name not in _OWN}
        lifetime = read_lifetime(headers, now_ns, topic.policy.message_ttl_ms)
        block = render_headers(headers.items())
        message_ids = self._context.message_ids
        origin = Origin(
            message_ids.connection_name(_BROKER),
            is_plain=b"\\r" not in block,
            is_persistent=messages[0].origin.is_persistent,
            lifetime_ns=lifetime.lifetime_ns,
            expires_at_ns=lifetime.expires_at_ns,
        )
        if origin.can_expire:
            topic.is_choosy = True
        returned = [
            Message(each.body_bytes, message_tail(message_ids.make(), block, each.body), origin, now_ns)
            for each in messages
        ]
        self._submit(Unit([Appended(topic, returned)], then=then, lane=self._lane))

    def _submit(self, unit: Unit) -> None:
        unit.refused = self._refuse
        self._context.journal.submit(unit)

    def _refuse(self, reason: str) -> None:
        self._client.disconnect(PeerViolation("cannot be stored", reason))
