"""What publishers that ask are told: who will get a message, that nobody will, and that it is or was there already.

Law: SENDs in a row that ask, or that a producer has numbered, are a unit of their own. Their receivers are counted in
the step that appends them, so nobody comes or goes in between. A message that nobody gets is sent to its `reply-to` as
a message of the broker: it asks nothing, so it is never returned itself, and `no-local` does not keep it from its
publisher. The RECEIPT of its SEND follows when that is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes import Appended, Introduced, Numbered, Unit, ValueChanged
from stompbroker.delivery import DestinationKind, appending
from stompbroker.errors import PeerViolation
from stompbroker.ids import ConnectionId, Offset
from stompbroker.message import Message, Origin
from stompbroker.sessions import temporaries
from stompbroker.sessions.numbering import read_numbers
from stompbroker.sessions.publishing import read_lifetime
from stompbroker.stomp import message_tail, render_frame, render_headers, render_receipts, tail_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.changes import Effect, Lane, Producer
    from stompbroker.delivery import Pattern
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.publishing import Publishing, Question, SendPlan
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import SendRun

#: Headers of a message that a returned one has of its own.
_OWN: Final = frozenset({"message-id", "content-length", "destination"})
#: No connection has this number: what the broker sends is nobody's own.
_BROKER: Final = ConnectionId(0)
#: What the RECEIPT of a message says whose number was taken.
_DUPLICATE: Final = [("duplicate", "true")]


@final
@dataclass(slots=True, eq=False)
class Reporting:
    _context: SessionContext
    _client: Client
    _outbox: Outbox
    _lane: Lane

    def send(self, run: SendRun, plan: SendPlan, question: Question, publishing: Publishing, now_ns: int) -> None:
        """Raises PeerViolation for a SEND that wants a report and no receipt, or whose number is wrong; those before it
        have been published by then."""
        receipts = run.receipts or [None] * len(run.bodies)
        if question.is_circle:
            self._submit(Unit(then=partial(self._drop, receipts), lane=self._lane))
            return
        numbering, numbers, stop = question.numbering, [0] * 0, len(run.bodies)
        wrong: PeerViolation | None = None
        if numbering is not None:
            numbers, wrong = read_numbers(run.sequences, numbering)
            stop = len(numbers)
        if question.is_reported and None in receipts[:stop]:
            stop = receipts.index(None)
            wrong = PeerViolation(
                "report:true without receipt",
                "the report comes with the RECEIPT: add a receipt header, or leave report out",
            )
        start, values = 0, self._context.registry.last_values
        try:
            while start < stop:
                if numbering is not None and not numbers[start]:
                    if run.bodies[start]:
                        raise PeerViolation(
                            "a body with producer-seq:0",
                            "0 is no message: number messages from 1 on, or leave the body out",
                        )
                    self._introduce(publishing.producer(numbering, now_ns), receipts[start])
                    start += 1
                    continue
                end = numbers.index(0, start, stop) if 0 in numbers[start:stop] else stop
                producer = None if numbering is None else publishing.producer(numbering, now_ns)
                appended = publishing.appended(plan, run.bodies[start:end], producer, numbers[start:end], now_ns)
                effects: list[Effect] = [appended]
                if plan.sets_value is not None:
                    said = [(message, plan.sets_value) for message in appended.messages]
                    effects.append(ValueChanged(values, plan.topic.destination, appended, said))
                then = partial(self._tell, appended, question, receipts[start:end])
                self._submit(Unit(effects, then=then, lane=self._lane))
                start = end
            if wrong is not None:
                raise wrong
        except PeerViolation as violation:
            violation.receipt = violation.receipt or receipts[start]
            raise

    def _drop(self, receipts: Sequence[str | None]) -> None:
        version, after_frame = self._client.version, self._context.settings.after_frame
        for receipt in receipts:
            if receipt is not None:
                headers = [("receipt-id", receipt), ("circle", "true")]
                self._outbox.put(render_frame("RECEIPT", headers, version=version) + after_frame)

    def _introduce(self, producer: Producer, receipt: str | None) -> None:
        """It begins an epoch, and is told which of its numbers was the last once everything before is decided."""

        def tell() -> None:
            last = [("producer-epoch", str(producer.epoch)), ("producer-last", str(producer.last))]
            if receipt is not None:
                frame = render_frame("RECEIPT", [("receipt-id", receipt), *last], version=self._client.version)
                self._outbox.put(frame + self._context.settings.after_frame)

        self._submit(Unit([Introduced(producer)], then=tell, lane=self._lane))

    def _tell(self, appended: Appended, question: Question, receipts: Sequence[str | None]) -> None:
        """The messages have just been appended, without those whose numbers were taken."""
        topic, messages = appended.topic, appended.messages
        first = Offset(topic.log.end_offset - len(messages))
        if not messages or not (question.is_reported or question.is_mandatory):
            self._give_receipts(appended, receipts, [], first)
            return
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
        give = partial(self._give_receipts, appended, receipts, told, first)
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

    def _give_receipts(
        self, appended: Appended, receipts: Sequence[str | None], told: list[tuple[str, str]], first: Offset
    ) -> None:
        is_new = appended.is_new if isinstance(appended, Numbered) else [True] * len(receipts)
        if not told and all(is_new):
            owed = [receipt for receipt in receipts if receipt is not None]
            if owed:
                self._outbox.put(render_receipts(owed, self._client.version, self._context.settings.after_frame))
            return
        version, after_frame = self._client.version, self._context.settings.after_frame
        frames: list[bytes] = []
        offset = int(first)
        for receipt, new in zip(receipts, is_new, strict=True):
            if receipt is not None:
                said = _DUPLICATE if not new else [*told, ("offset", str(offset))] if told else []
                frames += [render_frame("RECEIPT", [("receipt-id", receipt), *said], version=version), after_frame]
            offset += new
        if frames:
            self._outbox.put(b"".join(frames))

    def _return(self, messages: Sequence[Message], to: Pattern, to_text: str, then: Callable[[], None]) -> None:
        now_ns = self._context.clock.now_ns()
        if to.kind is DestinationKind.TEMPORARY:
            topic = temporaries.find(self._context.registry, to)
        else:
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
