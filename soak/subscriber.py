"""A durable subscriber that acknowledges one by one in random order, some with a receipt.

Records deliveries in order. It delays some ACKs, so that cursors always have holes. A subscriber that *wanders* leaves
now and then, and returns when others have moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from soak.body import publication_in
from soak.history import AckConfirmed, Delivered, Publication, SubscriberHistory
from soak.kill_plan import Moment
from soak.stomp_client import Misbehaved, StompClient, connected, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from soak.scene import Scene
    from stompbroker.stomp import Frame
    from tests.support.broker_process import Address

_HOLD_BACK_PROBABILITY: Final = 0.1
_RECEIPT_PROBABILITY: Final = 0.3
_LEAVE_PROBABILITY: Final = 0.02
_MOST_MISSED: Final = 3000
_NAME_HEADER: Final = "activemq.subscriptionName"


@final
class Subscriber:
    """Invariant: `_seen[p]` holds the numbers of publisher p's messages that have come at least once."""

    def __init__(
        self,
        name: str,
        destination: str,
        random: Random,
        scene: Scene,
        *,
        publishers: Iterable[int],
        wanders: bool,
        is_published: Callable[[], bool],
    ) -> None:
        """`is_published` says when everything has been published."""
        self.history = SubscriberHistory(subscriber=name, publishers=frozenset(publishers))
        self._name = name
        self._destination = destination
        self._random = random
        self._scene = scene
        self._wanders = wanders
        self._is_published = is_published
        self._seen: dict[int, set[int]] = {publisher: set() for publisher in self.history.publishers}
        #: Receipts for ACKs requested on this connection.
        self._unconfirmed: dict[str, Publication] = {}
        self._receipts = 0

    def has_all(self, last_numbers: Mapping[int, int]) -> bool:
        """Whether it has all messages up to these, and every requested confirmation."""
        return not self._unconfirmed and all(
            len(seen) >= last_numbers[publisher] for publisher, seen in self._seen.items()
        )

    def missing(self, last_numbers: Mapping[int, int]) -> int:
        return sum(last_numbers[publisher] - len(seen) for publisher, seen in self._seen.items())

    async def create(self) -> None:
        """Make the subscription, and leave."""
        await self._scene.keep_connected(self._subscribe_and_leave)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._scene.keep_connected(self._receive)
            comes_back_at = self._scene.count(Moment.RECEIPTED) + self._random.randint(1, _MOST_MISSED)
            await self._scene.wait_until(
                lambda at=comes_back_at: self._scene.count(Moment.RECEIPTED) >= at or self._is_published()  # type: ignore[misc]
            )

    async def _subscribe_and_leave(self, address: Address) -> None:
        async with connected(address, client_id=self._name) as client:
            await self._subscribe(client)
            await client.request("DISCONNECT", {"receipt": "goodbye"}, answer="RECEIPT")

    async def _subscribe(self, client: StompClient) -> None:
        headers = {"id": "0", "destination": self._destination, "ack": "client-individual"}
        headers |= {_NAME_HEADER: self._name, "receipt": "subscribed"}
        await client.request("SUBSCRIBE", headers, answer="RECEIPT")

    async def _receive(self, address: Address) -> None:
        """Until the connection is lost, or the subscriber wanders off."""
        self._unconfirmed.clear()
        async with connected(address, client_id=self._name) as client:
            await self._subscribe(client)
            held: list[tuple[Publication, str]] = []
            while True:
                held += self._take(await client.wait_frames())
                await self._acknowledge(client, held)
                if self._wanders and not self._is_published() and self._random.random() < _LEAVE_PROBABILITY:
                    self._unconfirmed.clear()
                    return

    def _take(self, frames: Iterable[Frame]) -> list[tuple[Publication, str]]:
        """Record a buffer of messages; returns what to acknowledge."""
        delivered: list[tuple[Publication, str]] = []
        confirmed = 0
        for frame in frames:
            if frame.command == "MESSAGE":
                publication = publication_in(frame.body)
                self.history.events.append(Delivered(publication, frame.headers["message-id"]))
                self._seen.setdefault(publication.publisher, set()).add(publication.number)
                delivered.append((publication, frame.headers["ack"]))
            elif frame.command == "RECEIPT" and frame.headers["receipt-id"] in self._unconfirmed:
                publication = self._unconfirmed.pop(frame.headers["receipt-id"])
                self.history.events.append(AckConfirmed(publication))
                confirmed += 1
            else:
                raise Misbehaved(f"{frame.command} {frame.headers} for a subscriber")
        self._scene.note(Moment.DELIVERED, len(delivered))
        self._scene.note(Moment.ACK_CONFIRMED, confirmed)
        return delivered

    async def _acknowledge(self, client: StompClient, held: list[tuple[Publication, str]]) -> None:
        """Most of them in random order; the others stay in `held`."""
        self._random.shuffle(held)
        frames: list[bytes] = []
        kept: list[tuple[Publication, str]] = []
        for publication, ack_id in held:
            if self._random.random() < _HOLD_BACK_PROBABILITY:
                kept.append((publication, ack_id))
                continue
            headers = {"id": ack_id}
            if self._random.random() < _RECEIPT_PROBABILITY:
                self._receipts += 1
                headers["receipt"] = f"ack {self._receipts}"
                self._unconfirmed[headers["receipt"]] = publication
            frames.append(encoded("ACK", headers))
        held[:] = kept
        if frames:
            await client.send(b"".join(frames))
            self._scene.note(Moment.ACKNOWLEDGED, len(frames))
