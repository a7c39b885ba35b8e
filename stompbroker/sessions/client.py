"""Who is at the other end of a connection; its consumers, and how its frames name them and their deliveries.

Law: from subscription ids, destinations, ack ids and message ids, which differ by version, to a consumer and a delivery
number. Decides nothing about what happens to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.access import ANYBODY
from stompbroker.errors import Denied, PeerViolation, shorten
from stompbroker.sessions.browsing import check_takes
from stompbroker.sessions.headers import check_name
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stompbroker.access import Grant, Right, Usage
    from stompbroker.delivery import Consumer, Pattern, Topic
    from stompbroker.ids import ConnectionId
    from stompbroker.message import MessageIds

#: Most topics that a connection is listed as a publisher of, for operators.
MAX_NOTED: Final = 1000
#: Characters of a destination that are repeated.
MAX_SHOWN: Final = 100


@final
@dataclass(slots=True, eq=False)
class Client:
    """
    Invariants:
        a topic is in `publishing_to` exactly when `publishing_to` is in its `publishers`
        it refers to its session until `release`
    """

    connection_id: ConnectionId
    #: Its address, for people to read.
    peer: str
    #: Called when DISCONNECT is done, its receipt included.
    end: Callable[[], None]
    #: Called when the broker cannot go on with this client.
    disconnect: Callable[[PeerViolation], None]
    version: Version = Version.V1_0
    #: From its CONNECT; the scope of its durable subscriptions' names.
    client_id: str | None = None
    #: What it may do.
    grant: Grant = ANYBODY
    #: Its name as a publisher: its client id, or a name that no other connection ever has.
    name: str = ""
    #: Topics it has published to, MAX_NOTED at most, until they are removed.
    publishing_to: dict[Topic, None] = field(default_factory=dict)

    def introduce(self, version: Version, client_id: str | None) -> None:
        """Its CONNECT has come. Raises PeerViolation."""
        self.version = version
        self.client_id = None if client_id is None else check_name("client-id", client_id)

    def admit(self, grant: Grant, message_ids: MessageIds) -> None:
        """Its CONNECT was checked."""
        self.grant = grant
        # Two users may choose the same client id; neither must be able to pass for the other.
        own_id = f"{grant.user}/{self.client_id}" if grant.user and self.client_id else self.client_id
        self.name = own_id or message_ids.connection_name(self.connection_id)

    def check_allowed(self, right: Right, asked: Pattern, destination: str) -> None:
        """Raise PeerViolation unless it has this right to all that is asked for; `destination` is how it wrote that."""
        if not self.grant.allows(right, asked):
            raise Denied(
                "not allowed",
                f"the user {self.grant.user!r} has no permission to {right.value} {shorten(destination, MAX_SHOWN)!r}; "
                "an operator can give it",
            )

    def note_publishing(self, topic: Topic) -> None:
        if len(self.publishing_to) < MAX_NOTED:
            self.publishing_to[topic] = None
            topic.publishers[self.connection_id] = self.publishing_to

    def leave_topics(self) -> None:
        """Take the connection off the publishers of its topics."""
        for topic in self.publishing_to:
            topic.publishers.pop(self.connection_id, None)
        self.publishing_to.clear()

    def release(self) -> None:
        """The connection is gone: drop the references to the session, which would be a reference cycle."""
        self.end = lambda: None
        self.disconnect = lambda _violation: None


class Named(NamedTuple):
    """One delivery, as an ACK or NACK named it."""

    consumer: Consumer
    number: int


@final
@dataclass(slots=True, eq=False)
class Consumers:
    """
    Invariants:
        every open consumer is in _by_ordinal, _by_key and _destinations
        len(_closed_names) <= _max_count, and len(_departed) <= _max_count
    """

    _message_ids: MessageIds
    _max_count: int
    _client: Client
    #: Counts those of each user.
    _usage: Usage
    _by_ordinal: dict[int, Consumer] = field(default_factory=dict)
    _by_key: dict[tuple[str | None, str], Consumer] = field(default_factory=dict)
    _destinations: dict[Consumer, str] = field(default_factory=dict)
    #: Names of subscriptions closed lately: an answer to one of their deliveries is late, not wrong.
    _closed_names: dict[str | None, None] = field(default_factory=dict)
    #: By ordinal, consumers that left durable subscriptions lately: answers to their deliveries still count.
    _departed: dict[int, Consumer] = field(default_factory=dict)
    next_ordinal: int = 1

    def __len__(self) -> int:
        return len(self._by_ordinal)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._by_ordinal.values())

    def __contains__(self, consumer: Consumer) -> bool:
        return self._by_ordinal.get(consumer.ordinal) is consumer

    @property
    def in_flight(self) -> int:
        return sum(consumer.in_flight for consumer in self)

    def check_may_open(self, name: str | None, destination: str) -> None:
        if len(self) >= self._max_count:
            raise PeerViolation(
                "too many subscriptions", f"this connection has {len(self)}, which is all it may have; UNSUBSCRIBE one"
            )
        self._usage.check_may_subscribe(self._client.grant.user)
        if _key(name, destination) in self._by_key:
            shown = _describe(name, destination)
            raise PeerViolation(
                "subscription exists",
                f"this connection has an open subscription with {shown}; UNSUBSCRIBE it first, or use another id",
            )

    def add(self, consumer: Consumer, destination: str) -> None:
        """`destination`: as its SUBSCRIBE spelt it."""
        name = consumer.name
        self._by_ordinal[consumer.ordinal] = consumer
        self._by_key[_key(name, destination)] = consumer
        self._destinations[consumer] = destination
        self._closed_names.pop(name, None)
        self._usage.subscribe(self._client.grant.user)
        self.next_ordinal += 1

    def remove(self, name: str | None, destination: str | None) -> Consumer:
        """Drop the one that an UNSUBSCRIBE names: by its id, or in 1.0 by its destination."""
        if name is None and destination is None:
            raise PeerViolation("UNSUBSCRIBE needs a header", "name the subscription by 'id' or by 'destination'")
        consumer = self.find(name, destination)
        if consumer is None:
            shown = _describe(name, destination)
            raise PeerViolation(
                "unknown subscription", f"this connection has no open subscription with {shown}; SUBSCRIBE first"
            )
        self.drop(consumer)
        return consumer

    def drop(self, consumer: Consumer) -> None:
        name, destination = consumer.name, self._destinations.pop(consumer)
        del self._by_key[_key(name, destination)]
        del self._by_ordinal[consumer.ordinal]
        self._usage.unsubscribe(self._client.grant.user)
        if len(self._closed_names) >= self._max_count:
            del self._closed_names[next(iter(self._closed_names))]
        self._closed_names[name] = None
        if consumer.subscription.is_durable and consumer.expects_acks and consumer.in_flight:
            if len(self._departed) >= self._max_count:
                del self._departed[next(iter(self._departed))]
            self._departed[consumer.ordinal] = consumer

    def have(self, destination: str) -> bool:
        """Whether one of them has this destination, as its SUBSCRIBE spelt it."""
        return destination in self._destinations.values()

    def find(self, name: str | None, destination: str | None) -> Consumer | None:
        """By id, or in 1.0 by destination: even one with an id, if no other has that destination."""
        if name is None:
            of_destination = [each for each in self if self._destinations[each] == destination]
            if len(of_destination) == 1:
                return of_destination[0]
        return self._by_key.get(_key(name, destination or ""))

    def clear(self) -> list[Consumer]:
        """Drop all of them."""
        consumers = list(self)
        if consumers:
            self._usage.unsubscribe(self._client.grant.user, len(consumers))
        self._departed.clear()
        self._by_ordinal.clear()
        self._by_key.clear()
        self._destinations.clear()
        return consumers

    def find_open(self, ordinal: int) -> Consumer | None:
        return self._by_ordinal.get(ordinal)

    def find_by_ack_id(self, ack_id: str) -> Named | None:
        """`find_delivery` for STOMP 1.2, where an id is the consumer's ordinal and its delivery number."""
        ordinal_text, _, number_text = ack_id.partition("-")
        if ack_id.isascii() and ordinal_text.isdigit() and number_text.isdigit() and len(ack_id) <= 40:
            ordinal, number = int(ordinal_text), int(number_text)
            if ack_id != f"{ordinal}-{number}":  # leading zeros: we never wrote that
                ordinal = 0
            consumer = self._by_ordinal.get(ordinal) or self._departed.get(ordinal)
            if consumer is not None and check_takes(consumer).sent.was_given(number):
                return Named(consumer, number)
            if consumer is None and 0 < ordinal < self.next_ordinal:
                return None
        raise PeerViolation(
            "unknown ack id", f"{ack_id!r} was never given to this connection; use the 'ack' header of a MESSAGE"
        )

    def find_delivery(self, headers: Mapping[str, str], version: Version) -> Named | None:
        """The delivery that an ACK or NACK names; None if nothing is left to answer. Raises PeerViolation if it never
        got that."""
        if version is Version.V1_2:
            return self.find_by_ack_id(headers["id"])
        if version is Version.V1_1:
            return self._by_subscription(headers["subscription"], headers["message-id"])
        return self._by_message_id(headers["message-id"])

    def _by_subscription(self, name: str, message_id: str) -> Named | None:
        consumer = self._by_key.get(_key(name, ""))
        if consumer is None and name not in self._closed_names:
            raise PeerViolation(
                "unknown subscription",
                f"this connection has no subscription with the id {name!r}; use that of a MESSAGE",
            )
        candidates = [each for each in reversed(self._departed.values()) if each.name == name]
        if consumer is not None:
            check_takes(consumer)
            # Not an earlier subscription with the same id, unless this one resumes it.
            candidates = [consumer, *(each for each in candidates if each.subscription is consumer.subscription)]
        found = next(self._sent_to(candidates, message_id), None)
        if found is None:
            self._check_is_old(message_id)
        return found

    def _by_message_id(self, message_id: str) -> Named | None:
        """1.0 does not say which subscription: the answer goes to the first that still has the message."""
        settled: Named | None = None
        for named in self._sent_to([*self, *reversed(self._departed.values())], message_id):
            if named.consumer.sent.is_unsettled(named.number):
                return named
            settled = named
        if settled is None:
            self._check_is_old(message_id)
        return settled

    @staticmethod
    def _sent_to(consumers: Iterable[Consumer], message_id: str) -> Iterator[Named]:
        """The deliveries of a message to those of the consumers that send answers."""
        for consumer in consumers:
            number = consumer.sent.number_of(message_id.encode()) if consumer.expects_acks else None
            if number is not None:
                yield Named(consumer, number)

    def _check_is_old(self, message_id: str) -> None:
        if not self._message_ids.was_made(message_id):
            raise PeerViolation(
                "unknown message id", f"{message_id!r} was never given to this connection; use that of a MESSAGE"
            )


def _key(name: str | None, destination: str) -> tuple[str | None, str]:
    """A subscription's id, or in 1.0, where it may have none, its destination as its SUBSCRIBE spelt it."""
    return (None, destination) if name is None else (name, "")


def _describe(name: str | None, destination: str | None) -> str:
    return f"the destination {destination!r} and no id" if name is None else f"the id {name!r}"
