"""A publisher that asks for receipts, and after a lost connection repeats in order what has none.

At most WINDOW messages are without a receipt. Some bursts are transactions, whose COMMIT has the receipt. Receipts come
in the order of their frames. A message is in the history before it is sent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from soak.body import body_of
from soak.history import Publication, PublisherHistory
from soak.kill_plan import Moment
from soak.stomp_client import Misbehaved, StompClient, connected, encoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from soak.scene import Scene
    from tests.support.broker_process import Address

WINDOW: Final = 400
_MOST_AT_ONCE: Final = 60
_TRANSACTION_PROBABILITY: Final = 0.15


@final
class Publisher:
    """Invariant: `_unreceipted` are the numbers that were sent and have no receipt, ascending."""

    def __init__(
        self,
        number: int,
        destination: str,
        random: Random,
        scene: Scene,
        *,
        messages: int,
        key_of: Callable[[int], str | None] = lambda number: None,
    ) -> None:
        self.history = PublisherHistory(publisher=number)
        #: Publishes at least so many, and goes on while kills are to come.
        self.messages = messages
        self._destination = destination
        #: The key of each message, by its number.
        self._key_of = key_of
        self._random = random
        self._scene = scene
        self._unreceipted: deque[int] = deque()

    @property
    def is_done(self) -> bool:
        return not self._unreceipted and not self._has_new()

    @property
    def last_number(self) -> int:
        return len(self.history.copies)

    async def run(self) -> None:
        await self._scene.keep_connected(self._publish)

    async def _publish(self, address: Address) -> None:
        async with connected(address) as client:
            talk = _Talk(client, again=deque(self._unreceipted))
            while talk.again or talk.awaited or self._has_new():
                while (room := WINDOW - talk.outstanding) > 0 and (numbers := self._next_numbers(talk, room)):
                    await self._send(talk, numbers)
                await self._take_receipts(talk)

    def _has_new(self) -> bool:
        return self.last_number < self.messages or not self._scene.plan.is_done

    def _next_numbers(self, talk: _Talk, room: int) -> list[int]:
        """First send again what has no receipt, in the old order."""
        burst = min(room, self._random.randint(1, _MOST_AT_ONCE))
        if talk.again:
            return [talk.again.popleft() for _ in range(min(burst, len(talk.again)))]
        return list(range(self.last_number + 1, self.last_number + 1 + burst)) if self._has_new() else []

    async def _send(self, talk: _Talk, numbers: list[int]) -> None:
        publications = [self._begin(number) for number in numbers]
        headers = {"destination": self._destination}
        receipt = ",".join(f"{each.number}-{each.copy}" for each in publications)
        if len(numbers) > 1 and self._random.random() < _TRANSACTION_PROBABILITY:
            self.history.transactions.append(tuple(publications))
            headers |= {"transaction": receipt}
            frames = [encoded("BEGIN", {"transaction": receipt})]
            frames += [encoded("SEND", headers | self._key(each), body_of(each)) for each in publications]
            frames += [encoded("COMMIT", {"transaction": receipt, "receipt": receipt})]
            talk.awaited.append((receipt, numbers))
        else:
            frames = []
            for each in publications:
                receipt = f"{each.number}-{each.copy}"
                frames.append(encoded("SEND", headers | {"receipt": receipt} | self._key(each), body_of(each)))
                talk.awaited.append((receipt, [each.number]))
        talk.outstanding += len(numbers)
        await talk.client.send(b"".join(frames))
        self._scene.note(Moment.SENT, len(numbers))

    def _key(self, publication: Publication) -> dict[str, str]:
        key = self._key_of(publication.number)
        return {} if key is None else {"group-key": f"{publication.publisher} {key}"}

    def _begin(self, number: int) -> Publication:
        copies = self.history.copies
        if number > len(copies):
            copies.append(0)
            self._unreceipted.append(number)
        copies[number - 1] += 1
        return Publication(self.history.publisher, number, copies[number - 1])

    async def _take_receipts(self, talk: _Talk) -> None:
        if not talk.awaited:
            return
        receipted = 0
        for frame in await talk.client.wait_frames():
            receipt, numbers = talk.awaited.popleft()
            if (frame.command, frame.headers.get("receipt-id")) != ("RECEIPT", receipt):
                raise Misbehaved(f"{frame.command} {frame.headers} instead of the receipt {receipt}")
            for number in numbers:
                self._unreceipted.remove(number)  # the first, as receipts come in order
                self.history.receipted.add(number)
            receipted += len(numbers)
        talk.outstanding -= receipted
        self._scene.note(Moment.RECEIPTED, receipted)


@final
class _Talk:
    """One connection's state."""

    __slots__ = ("again", "awaited", "client", "outstanding")

    def __init__(self, client: StompClient, *, again: deque[int]) -> None:
        self.client = client
        #: Numbers to send again.
        self.again = again
        #: Expected receipts in order, with the numbers they confirm.
        self.awaited: deque[tuple[str, list[int]]] = deque()
        self.outstanding = 0
