"""A client that sends random valid frames.

Knows one connection at a time and no socket. Its frames are valid whatever the broker does meanwhile, so it accepts
only the ERRORs in `EXPECTED_ERRORS`. A slot is one client id; its durable subscriptions outlive its connections and are
resumed in any ack mode.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.stomp import FrameReader, Limits, Version, render_frame

if TYPE_CHECKING:
    from random import Random

    from stompbroker.stomp import Frame

#: Slots with a durable subscription to everything that is never deleted.
AUDITORS: Final = 3
#: ERRORs for two clients with one `x-queue-name`, and for one that fills a window and waits for a receipt.
EXPECTED_ERRORS: Final = ("durable subscription taken over", "durable subscription in use", "subscriber too slow")

_ACK_MODES: Final = ("auto", "client", "client-individual")
_TOPICS: Final = (*(f"chaos.{letter}.{number}" for letter in "ab" for number in range(3)), "chaos.kept", "memory.x")
_PATTERNS: Final = ("chaos.a.*", "chaos.b.>", "chaos.#", "memory.*", "chaos.a.0", "chaos.b.1", "memory.x")
#: Ways to name a durable subscription, within the client id or globally.
_NAMINGS: Final = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
    "durable",
    "persistent",
    "x-queue-name",
)
_SHARED_QUEUES: Final = 4
_MOST_SUBSCRIPTIONS, _MOST_TRANSACTIONS, _MOST_IN_TRANSACTION = 6, 3, 30
#: Unanswered deliveries after which it only sends answers.
_MOST_UNANSWERED: Final = 60


class Delivery(NamedTuple):
    """What an ACK needs."""

    headers: dict[str, str]


class Subscribed(NamedTuple):
    """A subscription that is open on this connection."""

    id: str
    ack: str
    #: The headers that name it, if it is durable; UNSUBSCRIBE with them deletes it.
    durable: dict[str, str]

    @property
    def may_be_deleted(self) -> bool:
        return bool(self.durable) and "auditor" not in self.durable.values()


@final
class Seen:
    """What all clients know, for the verdict."""

    def __init__(self) -> None:
        #: Bodies that a receipt promises to the auditors.
        self.promised: set[bytes] = set()
        #: Message ids under which each body was delivered.
        self.message_ids: dict[bytes, set[str]] = {}
        self.sent = 0
        self.frames = 0
        self.receipts = 0
        self.deliveries = 0
        self.connections = 0
        self.expected_errors = 0


@final
class WildClient:
    def __init__(self, slot: int, chance: Random, seen: Seen) -> None:
        self.slot = slot
        self._chance = chance
        self._seen = seen
        self._receipt = 0
        self.forget(Version.V1_2)

    def forget(self, version: Version) -> None:
        """A new connection, of that version."""
        self.version = version
        self._reader = FrameReader(Limits())
        self._reader.version = version
        self._subscriptions: dict[str, Subscribed] = {}
        self._transactions: dict[str, list[bytes]] = {}
        self._frames_in: dict[str, int] = {}
        self._unanswered: deque[Delivery] = deque()
        self._answered: deque[Delivery] = deque(maxlen=20)
        #: Bodies promised by each receipt.
        self.owed: dict[str, list[bytes]] = {}
        self.is_connected = False
        #: The `message` of an ERROR, once there is one.
        self.error: str | None = None

    # What comes ------------------------------------------------------------------------------------------------------

    def take(self, chunk: bytes) -> None:
        frames = self._reader.receive(chunk)
        while self._reader.has_more:
            frames += self._reader.receive(b"")
        for frame in frames:
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            self._take_message(frame)
        elif frame.command == "RECEIPT":
            self._seen.receipts += 1
            self._seen.promised.update(self.owed.pop(frame.headers["receipt-id"]))
        elif frame.command == "CONNECTED":
            self.is_connected = True
        else:
            self.error = f"{frame.headers.get('message')}: {frame.body.decode(errors='replace')}"
            if frame.headers.get("message", "").startswith(EXPECTED_ERRORS):
                self._seen.expected_errors += 1
                self.error = ""

    def _take_message(self, frame: Frame) -> None:
        self._seen.deliveries += 1
        headers = frame.headers
        name = headers.get("subscription", "")
        if "redrive-of" not in headers and headers["destination"].startswith("/topic/chaos"):
            self._seen.message_ids.setdefault(frame.body, set()).add(headers["message-id"])
        subscribed = self._subscriptions.get(name)
        is_auto = subscribed is not None and subscribed.ack == "auto"
        if self.version is Version.V1_2:
            if "ack" in headers:
                self._unanswered.append(Delivery({"id": headers["ack"]}))
        elif not is_auto or self._chance.random() < 0.05:
            named = {"message-id": headers["message-id"]}
            if self.version is Version.V1_1:
                named["subscription"] = name
            self._unanswered.append(Delivery(named))

    # What it says ----------------------------------------------------------------------------------------------------

    def greet(self) -> bytes:
        headers = {"accept-version": self.version.value, "host": "chaos", "client-id": f"client-{self.slot}"}
        return render_frame("CONNECT", list(headers.items()), b"", Version.V1_2)

    def say(self) -> bytes:
        """One frame."""
        if len(self._unanswered) > _MOST_UNANSWERED:
            return self._answer()
        if self.slot < AUDITORS and "auditor" not in self._subscriptions and self._chance.random() < 0.2:
            return self._subscribe_as_auditor()
        says = self._chance.choices(
            (self._send, self._answer, self._subscribe, self._unsubscribe, self._begin, self._end_transaction),
            (40, 45, 4, 3.5, 3, 4.5),
        )[0]
        return says()

    def ask_for_receipt(self) -> bytes:
        """A frame whose receipt comes after everything sent before."""
        return (
            self._frame("UNSUBSCRIBE", self._name_to_leave(), wants_receipt=True)
            if self._may_leave
            else self._send(wants_receipt=True)
        )

    def part(self) -> bytes:
        """DISCONNECT: nothing may be said after it."""
        return self._frame("DISCONNECT", {}, wants_receipt=True)

    def _frame(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        wants_receipt: bool | None = None,
        promises: list[bytes] | None = None,
    ) -> bytes:
        if wants_receipt if wants_receipt is not None else self._chance.random() < 0.2:
            self._receipt += 1
            headers = headers | {"receipt": str(self._receipt)}
            self.owed[str(self._receipt)] = promises or []
        self._seen.frames += 1
        return render_frame(command, list(headers.items()), body, self.version)

    def _send(self, *, wants_receipt: bool | None = None) -> bytes:
        self._seen.sent += 1
        topic = self._chance.choice(_TOPICS)
        body = b"%d %b" % (self._seen.sent, b"x" * self._chance.choice((0, 10, 10, 2000)))
        headers = {"destination": f"/topic/{topic}"}
        is_promised = topic.startswith("chaos")
        if self._chance.random() < 0.1:
            headers["persistent"] = "false"
            is_promised = False
        if self._chance.random() < 0.1:
            headers["ttl"] = self._chance.choice(("1", "50", "100000"))
            is_promised = False
        promises = [body] if is_promised else []
        transaction = self._some_transaction(0.2)
        if transaction is not None:
            headers["transaction"] = transaction
            self._transactions[transaction] += promises
            promises = []  # the receipt of its COMMIT promises it
        return self._frame("SEND", headers, body, wants_receipt=wants_receipt, promises=promises)

    def _some_transaction(self, probability: float) -> str | None:
        having_room = [name for name, count in self._frames_in.items() if count < _MOST_IN_TRANSACTION]
        if not having_room or self._chance.random() > probability:
            return None
        transaction = self._chance.choice(having_room)
        self._frames_in[transaction] += 1
        return transaction

    def _answer(self) -> bytes:
        if self._answered and self._chance.random() < 0.03:
            delivery = self._chance.choice(self._answered)  # once more, which is late
        elif self._unanswered:
            if self._chance.random() < 0.5:
                self._unanswered.rotate(-self._chance.randrange(len(self._unanswered)))
            delivery = self._unanswered.popleft()
            self._answered.append(delivery)
        else:
            return self._send()
        headers = dict(delivery.headers)
        command = "ACK"
        if self.version is not Version.V1_0 and self._chance.random() < 0.12:
            command = "NACK"
            if self._chance.random() < 0.5:
                headers["delay"] = self._chance.choice(("0", "1", "20", "100"))
            if self._chance.random() < 0.1:
                headers["requeue"] = "false"
            if self._chance.random() < 0.3:
                headers["reason"] = self._chance.choice(("no paper", "too late"))
        transaction = self._some_transaction(0.1)
        if transaction is not None:
            headers["transaction"] = transaction
        return self._frame(command, headers)

    def _begin(self) -> bytes:
        if len(self._transactions) >= _MOST_TRANSACTIONS:
            return self._end_transaction()
        self._receipt += 1
        name = f"t{self._receipt}"
        self._transactions[name] = []
        self._frames_in[name] = 0
        return self._frame("BEGIN", {"transaction": name})

    def _end_transaction(self) -> bytes:
        if not self._transactions:
            return self._send()
        name = self._chance.choice(list(self._transactions))
        promised = self._transactions.pop(name)
        del self._frames_in[name]
        command = "COMMIT" if self._chance.random() < 0.8 else "ABORT"
        return self._frame(command, {"transaction": name}, promises=promised if command == "COMMIT" else [])

    def _subscribe_as_auditor(self) -> bytes:
        return self._open(
            # In `auto` mode a message is settled even if its client has vanished; one auditor must see everything.
            Subscribed(
                "auditor",
                self._chance.choice(_ACK_MODES[1:] if self.slot == 0 else _ACK_MODES),
                {"durable-subscription-name": "auditor"},
            ),
            {"destination": "/topic/chaos.>", **self._some_credit()},
        )

    def subscribe_to_drain(self) -> bytes:
        """SUBSCRIBE as an auditor that receives everything left."""
        subscribed = Subscribed("auditor", "client-individual", {"durable-subscription-name": "auditor"})
        return self._open(subscribed, {"destination": "/topic/chaos.>", "prefetch-count": "500"}, wants_receipt=True)

    def acknowledge_all(self) -> bytes:
        answers = [self._frame("ACK", each.headers, wants_receipt=False) for each in self._unanswered]
        self._unanswered.clear()
        return b"".join(answers)

    def _subscribe(self) -> bytes:
        if len(self._subscriptions) >= _MOST_SUBSCRIPTIONS:
            return self._unsubscribe()
        ack = self._chance.choice(_ACK_MODES)
        choice = self._chance.random()
        if choice < 0.1:
            start = self._chance.choice(("earliest", "latest", "offset=0", "5s"))
            return self._open_transient(ack, {"destination": "/topic/chaos.kept", "from": start})
        if choice < 0.4:
            return self._open_transient(ack, {"destination": f"/topic/{self._chance.choice(_PATTERNS)}"})
        naming = self._chance.choice(_NAMINGS)
        number = _NAMINGS.index(naming)
        pattern = _PATTERNS[(self.slot + number) % len(_PATTERNS)]
        name = f"d{number}"
        durable = {naming: name}
        if naming == "x-queue-name":
            # Rarely: the other client loses its connection.
            shared = self._chance.randrange(_SHARED_QUEUES)
            if self._chance.random() > 0.1:
                return self._send()
            pattern, name, durable = _PATTERNS[shared], f"q{shared}", {naming: f"shared-{shared}"}
        elif naming in ("durable", "persistent"):
            durable = {naming: "true"}
        if name in self._subscriptions:
            return self._send()
        headers = {"destination": f"/topic/{pattern}", **self._some_credit(), **self._some_wishes()}
        if ack != "auto" and self._chance.random() < 0.1:
            headers = {"destination": headers["destination"], "ordering": "strict"}
        return self._open(Subscribed(name, ack, durable), headers)

    def _open_transient(self, ack: str, headers: dict[str, str]) -> bytes:
        self._receipt += 1
        return self._open(Subscribed(f"s{self._receipt}", ack, {}), headers | self._some_credit())

    def _open(self, subscribed: Subscribed, headers: dict[str, str], *, wants_receipt: bool | None = None) -> bytes:
        self._subscriptions[subscribed.id] = subscribed
        headers = {"id": subscribed.id, "ack": subscribed.ack, **headers, **subscribed.durable}
        return self._frame("SUBSCRIBE", headers, wants_receipt=wants_receipt)

    def _some_credit(self) -> dict[str, str]:
        return self._chance.choice(
            (
                {},
                {"prefetch-count": "1"},
                {"prefetch-count": "7"},
                {"credit": "10,3000"},
                {"activemq.prefetchSize": "40"},
            )
        )

    def _some_wishes(self) -> dict[str, str]:
        return self._chance.choice(
            (
                {},
                {"max-attempts": "2"},
                {"max-attempts": "2", "when-used-up": "discard"},
                {"ack-deadline": "200"},
                {"redelivery-delay": "10", "redelivery-jitter": "0.5"},
            )
        )

    @property
    def _may_leave(self) -> bool:
        return bool(self._subscriptions) and self._chance.random() < 0.1

    def _name_to_leave(self) -> dict[str, str]:
        subscribed = self._subscriptions.pop(self._chance.choice(list(self._subscriptions)))
        deletes = subscribed.may_be_deleted and self._chance.random() < 0.2
        return {"id": subscribed.id, **(subscribed.durable if deletes else {})}

    def _unsubscribe(self) -> bytes:
        return self._frame("UNSUBSCRIBE", self._name_to_leave()) if self._subscriptions else self._subscribe()
