"""From the SENDs of one connection to messages.

Law: the topic of a head is found once and remembered on the head; bodies become messages in a unit. The caller checks
whether they may be published now. A publisher says how long a message lives:

    expires       milliseconds since 1970: the end itself (ActiveMQ, JMS)
    ttl           milliseconds from now
    expiration    the same (RabbitMQ)

0 means never in each of them, in spite of the topic's default. If a frame has several, the earliest end counts. An end
after the year 2262 means never. With `group-key` (`JMSXGroupID`, `message_group`) consumers of a queue or group get it
when the ones before it with the same key are settled. It may also ask what becomes of it (see `reporting`):

    report:true       its RECEIPT says how many will get it
    mandatory:true    if nobody will, it goes to `reply-to` instead, or is an ERROR
    outcome-to:DEST   what durable subscriptions, groups and queues make of it is told there (see `changes/outcomes.py`)

It may say what newcomers of its topic get first (see `delivery/last_values.py`):

    retain:set        this message, from now on, instead of the last value before
    retain:remove     nothing any more
    retain:false      not this one, although the operator says so for all (`last_value`)

And it may number its messages, so that one it repeats is published once (see `changes/producers.py`):

    producer          its name
    producer-epoch    which process of that name it is
    producer-seq      the number, from 1 on; 0 begins an epoch and asks which number was the last

Hot path: `gather`, for all SENDs of one head at once. `make bench` (topic 1→1) and `tests/sessions/test_hot_path.py`
guard it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.access import Right
from stompbroker.changes import OF_BRIDGES, Appended, Numbered
from stompbroker.delivery import DestinationKind, parse_topic_name
from stompbroker.errors import PeerViolation
from stompbroker.message import Message, Origin
from stompbroker.sessions.bridging import read_path
from stompbroker.sessions.headers import (
    UNSUPPORTED_IN_SEND,
    malformed,
    read_group_key,
    refuse_unsupported,
    shown,
    truth,
    whole_number,
)
from stompbroker.sessions.numbering import Numbering, read_done, read_numbering, read_numbers
from stompbroker.sessions.temporaries import is_own, is_remote
from stompbroker.stomp import Version, message_tail_template, render_passed_through

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stompbroker.access import Grant
    from stompbroker.changes import Producer
    from stompbroker.delivery import Pattern, Topic
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.gathering import UnitBuilder
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.temporaries import Temporaries
    from stompbroker.stomp import Frame, Head, SendRun

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
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a SEND asks about itself, or that it is numbered."""

    is_reported: bool = False
    is_mandatory: bool = False
    numbering: Numbering | None = None
    #: Whether it came over bridges and was here already: then it is dropped.
    is_circle: bool = False
    #: Where a mandatory message goes that nobody gets, and how its publisher wrote that.
    reply_to: Pattern | None = None
    reply_to_text: str = ""


@final
@dataclass(slots=True, eq=False)
class SendPlan:
    """What follows from a SEND's header block; kept on the head, which all frames with the same block share."""

    topic: Topic
    tail_template: bytes
    origin: Origin
    #: For which it was allowed.
    grant: Grant
    question: Question | None
    #: Whether a message becomes its topic's last value, or takes that away (false); None for neither.
    sets_value: bool | None
    #: Temporary destinations of the client's own that it names, and so is subscribed to.
    replies: list[str]


@final
@dataclass(slots=True, eq=False)
class Publishing:
    _context: SessionContext
    _client: Client
    _temporaries: Temporaries

    def plan(self, head: Head) -> SendPlan:
        """Made once for a head. Raises PeerViolation."""
        plan = head.plan
        if not isinstance(plan, SendPlan) or plan.topic.is_gone or plan.grant is not self._client.grant:
            plan = self._make_plan(head)
            # Where one goes that has no topic now is looked up anew each time, so it has no place.
            head.plan, head.place = plan, None if plan.topic.is_gone else plan.topic.destination.key
        return plan

    def _make_plan(self, head: Head) -> SendPlan:
        refuse_unsupported(head.headers, UNSUPPORTED_IN_SEND)
        is_persistent = truth("persistent", head.headers.get("persistent", "true"))
        now_ns = self._context.clock.now_ns()
        headers = self._with_remote_reply_to(head.headers, now_ns)
        question, group_key = self._read_question(headers), read_group_key(headers)
        outcome_to = self._read_outcome_to(headers, now_ns)
        topic = self._find_topic(head.headers["destination"], now_ns)
        lifetime = read_lifetime(head.headers, now_ns, topic.policy.message_ttl_ms)
        sets_value = _read_retain(head.headers, topic)
        passed_through = render_passed_through(headers, Version.V1_2)
        origin = Origin(
            self._client.name,
            is_plain=b"\\r" not in passed_through,
            is_persistent=is_persistent,
            lifetime_ns=lifetime.lifetime_ns,
            expires_at_ns=lifetime.expires_at_ns,
            outcome_to=outcome_to,
            group_key=group_key,
        )
        topic.is_asking = topic.is_asking or outcome_to is not None
        self._client.note_publishing(topic)
        if origin.can_expire:
            topic.is_choosy = True
        template = message_tail_template(self._context.message_ids.prefix, passed_through)
        replies = [text for name in ("reply-to", "outcome-to") if is_own(text := head.headers.get(name, ""))]
        return SendPlan(topic, template, origin, self._client.grant, question, sets_value, replies)

    def _read_question(self, headers: Mapping[str, str]) -> Question | None:
        """None if the SEND asks nothing. Raises PeerViolation."""
        asked = {name: truth(name, headers[name]) for name in ("report", "mandatory") if name in headers}
        numbering = read_numbering(headers)
        if path := read_path(headers, self._client, self._context.settings):
            if "transaction" in headers:
                raise PeerViolation("bridge-path in a transaction", "send it outside of transactions")
            if self._context.message_ids.store_id in path:
                return Question(is_circle=True)
            numbering = None if numbering is None else numbering._replace(is_of_bridge=True)
        if not any(asked.values()):
            return None if numbering is None else Question(numbering=numbering)
        if "transaction" in headers:
            header = "report" if asked.get("report") else "mandatory"
            raise PeerViolation(
                f"{header}:true in a transaction",
                "who gets a message is known after COMMIT, when none of it can be undone; leave the header out, or "
                "send this message outside of transactions",
            )
        is_mandatory = asked.get("mandatory", False)
        reply_to, text = None, headers.get("reply-to", "")
        if is_mandatory and is_remote(text):
            reply_to = self._temporaries.name_of(text)
        elif is_mandatory and "reply-to" in headers:
            try:
                reply_to = self._context.read_destination(text, parse_topic_name)
            except PeerViolation as violation:
                raise PeerViolation("malformed header 'reply-to'", violation.detail) from None
            self._client.check_allowed(Right.WRITE, reply_to, text)
        return Question(
            is_reported=asked.get("report", False),
            is_mandatory=is_mandatory,
            numbering=numbering,
            reply_to=reply_to,
            reply_to_text=text,
        )

    def _read_outcome_to(self, headers: Mapping[str, str], now_ns: int) -> str | None:
        """The key of the destination, a queue made if need be; None if the SEND does not ask. Raises PeerViolation."""
        text = headers.get("outcome-to")
        if text is None:
            return None
        if is_own(text):
            return self._temporaries.own("outcome-to", text, now_ns).destination.key
        if is_remote(text):
            return self._temporaries.name_of(text).key
        try:
            name = self._context.read_destination(text, parse_topic_name)
        except PeerViolation as violation:
            raise PeerViolation("malformed header 'outcome-to'", violation.detail) from None
        if name.is_of_dead_letters:
            raise PeerViolation(
                "malformed header 'outcome-to'",
                f"{shown(text)} holds dead letters; name another topic, a queue, or a temporary destination of yours",
            )
        self._client.check_allowed(Right.WRITE, name, text)
        if name.kind is DestinationKind.QUEUE:
            self._context.queues.topic(name, now_ns)
        return name.key

    def _find_topic(self, destination: str, now_ns: int) -> Topic:
        """Where it goes, made if need be. Raises PeerViolation."""
        if is_own(destination) or is_remote(destination):
            # Whoever knows such a name may send there.
            return self._temporaries.to_send_to(destination)
        name = self._context.read_destination(destination, parse_topic_name)
        self._client.check_allowed(Right.WRITE, name, destination)
        return self._context.queues.topic(name, now_ns)

    def _with_remote_reply_to(self, headers: Mapping[str, str], now_ns: int) -> Mapping[str, str]:
        """With the name by which others know the sender's temporary destination. Raises PeerViolation."""
        reply_to = headers.get("reply-to", "")
        if not is_own(reply_to):
            return headers
        self._temporaries.own("reply-to", reply_to, now_ns)
        return {**headers, "reply-to": self._temporaries.remote_name(reply_to)}

    def gather(self, plan: SendPlan, run: SendRun, unit: UnitBuilder, now_ns: int) -> None:
        """Make each body a message on its topic's run."""
        topic, publications = plan.topic, unit.publications
        messages = self.messages_of(plan, run.bodies, now_ns)
        if plan.sets_value is not None:
            unit.values[topic] = messages[-1], plan.sets_value
        if topic in publications:
            publications[topic] += messages
        else:
            publications[topic] = messages
        if run.receipts:
            unit.receipts.extend([receipt for receipt in run.receipts if receipt is not None])

    def messages_of(self, plan: SendPlan, bodies: Sequence[bytes], now_ns: int) -> list[Message]:
        template, origin = plan.tail_template, plan.origin
        message_ids = self._context.message_ids
        first = message_ids.next_number
        message_ids.next_number = first + len(bodies)
        return [
            Message(len(body), template % (number, len(body), body), origin, now_ns)
            for number, body in enumerate(bodies, first)
        ]

    def appended(
        self, plan: SendPlan, bodies: Sequence[bytes], producer: Producer | None, numbers: list[int], now_ns: int
    ) -> Appended:
        """Raises PeerViolation if the producer has left out too many numbers."""
        if producer is None:
            return Appended(plan.topic, self.messages_of(plan, bodies, now_ns))
        producer.offer(numbers)
        return Numbered(plan.topic, self.messages_of(plan, bodies, now_ns), producer=producer, numbers=numbers)

    def check_values_fit(self, sizes_bytes: Mapping[Topic, int]) -> None:
        """Raise PeerViolation if there is no room for last values with bodies of these sizes."""
        values = self._context.registry.last_values
        before = [values.get(topic.destination.key) for topic in sizes_bytes]
        size_bytes = values.size_bytes - sum(value.message.size_bytes for value in before if value is not None)
        size_bytes += sum(sizes_bytes.values())
        if size_bytes > values.max_bytes:
            raise PeerViolation(
                "too many last values",
                f"with these they would take {size_bytes} bytes, and may take {values.max_bytes} "
                "(last_values_bytes); take some away with retain:remove, or send without retain:set",
            )

    def producer(self, numbering: Numbering, now_ns: int) -> Producer:
        """Raises PeerViolation if it may not send any more."""
        owner = OF_BRIDGES if numbering.is_of_bridge else self._client.grant.user
        return self._context.producers.use(owner, numbering.producer, numbering.epoch, now_ns)

    def note_done(self, headers: Mapping[str, str], now_ns: int) -> None:
        """Of DISCONNECT. Raises PeerViolation."""
        if (done := read_done(headers)) is not None:
            self._context.producers.note_done(self._client.grant.user, *done, now_ns)

    def producers_of(
        self, plans: Mapping[Head, SendPlan], frames: Sequence[Frame], now_ns: int
    ) -> dict[Head, Producer]:
        """Who has numbered the SENDs of a transaction. Raises PeerViolation if one of them may not send them."""
        producers: dict[Head, Producer] = {}
        numbers: dict[Producer, list[int]] = {}
        for head, plan in plans.items():
            if plan.question is not None and plan.question.numbering is not None:
                producers[head] = self.producer(plan.question.numbering, now_ns)
        for frame in frames if producers else ():
            if frame.head in producers:
                numbers.setdefault(producers[frame.head], []).append(int(frame.sequence or 0))
        for producer, found in numbers.items():
            producer.offer(found)
        return producers


def check_number_in_transaction(frame: Frame, question: Question) -> None:
    """Raise PeerViolation unless its number is one of a message."""
    if question.numbering is None:
        return
    numbers, wrong = read_numbers([frame.sequence or ""], question.numbering)
    if wrong is not None:
        raise wrong
    if numbers == [0]:
        raise PeerViolation(
            "producer-seq:0 in a transaction", "0 is no message, but begins an epoch: send it outside of transactions"
        )


def _read_retain(headers: Mapping[str, str], topic: Topic) -> bool | None:
    """Whether a SEND sets the last value of its topic, or takes it away (false). Raises PeerViolation."""
    said = headers.get("retain", "")
    if said not in ("", "set", "remove", "false"):
        raise malformed("retain", said, "one of set, remove, false")
    if topic.destination.kind is not DestinationKind.TOPIC:
        if said in ("set", "remove"):
            raise PeerViolation(
                "'retain' is for topics",
                f"{shown(headers['destination'])} is none, and has no last value: use /topic/NAME, or leave retain out",
            )
        return None
    if said in ("", "false"):
        return True if topic.policy.last_value and not said else None
    return said == "set"


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
