"""What a client keeps over one connection after the other, and the task that connects.

Law: the client is the source of truth. What is subscribed to, and what is not confirmed, is here; each connection is
told anew. What comes is applied synchronously. A failure without remedy ends everything: it is raised by whatever waits
or is asked for then.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.client.calling import REPLY_QUEUE, Calls
from stompbroker.client.errors import (
    ClientClosed,
    ClientError,
    GaveUp,
    LoginRefused,
    NoConnection,
    Problem,
    ProducerReplaced,
    Refused,
    TooSlow,
)
from stompbroker.client.requests import Kind, Request, Requests
from stompbroker.client.subscription import Subscription
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from stompbroker.client.back_off import BackOff
    from stompbroker.client.link import Link
    from stompbroker.stomp import Frame

    #: Opens a connection to one of the broker's addresses, in a block that closes it.
    Opener = Callable[[], AbstractAsyncContextManager[Link]]

#: A connection that lived this long, in seconds, was a good one: the next failure is the first.
STABLE_S: Final = 5.0

_log: Final = logging.getLogger("stompbroker.client")


@final
class Core:
    """
    Invariants:
        there is a link in `requests` exactly while `_converse` runs
        once `failure` is set, no request is open, and nothing is connected any more
        the request of every subscription in `_subscriptions` is sent on each link
    """

    def __init__(
        self, openers: Sequence[Opener], requests: Requests, *, back_off: BackOff, give_up_after_s: float | None
    ) -> None:
        self._openers = openers
        self.requests = requests
        self._back_off = back_off
        self._give_up_after_s = inf if give_up_after_s is None else give_up_after_s
        self._subscriptions = dict[str, Subscription]()
        self.calls = Calls()
        self._not_begun = ClientClosed("The block of the client has not begun: async with connect(…) as client.")
        self.failure: ClientError | None = self._not_begun
        self.connections = 0
        #: Nothing is connected again.
        self.is_closing = False
        #: What was alone on its way when an ERROR came that names nothing, as RabbitMQ's do; or that this has to be
        #: found out on the next link, since more was on its way.
        self._suspect: Request | None = None
        self._is_suspicious = False
        #: The state has changed: connected, ended, or there may be room to read on.
        self.changed = Signal()

    def begin(self) -> None:
        """Once; afterwards it has ended."""
        if self.failure is self._not_begun:
            self.failure = None

    def check(self) -> None:
        """Raises ClientError if it has ended."""
        if self.failure is not None:
            raise self.failure

    async def wait_connected(self) -> None:
        """Raises ClientError."""
        while self.requests.link is None:
            self.check()
            await self.changed.wait()

    async def wait_disconnected(self) -> None:
        """Once it is closing. Raises Refused if that was the broker's last word."""
        while self.failure is None:
            await self.changed.wait()
        if isinstance(self.failure, Refused):
            raise self.failure

    async def wait_room(self, size_bytes: int) -> None:
        """Until so much may be submitted. Raises ClientError."""
        self.check()
        while not self.requests.has_room(size_bytes):
            await self.requests.room.wait()
            self.check()

    def submit(self, request: Request) -> None:
        self.requests.submit(request)
        # Reading may have stopped, and now there is a receipt to wait for.
        self.changed.wake()

    def is_subscription(self, name: str) -> bool:
        return name in self._subscriptions

    def add(self, subscription: Subscription) -> None:
        """Raises ClientError, and ValueError if there is one of that id."""
        self.check()
        if subscription.id in self._subscriptions:
            raise ValueError(f"there is a subscription {subscription.id!r} already")
        self._subscriptions[subscription.id] = subscription
        self.submit(subscription.request)

    def remove(self, subscription: Subscription, reason: ClientError) -> None:
        if self._subscriptions.get(subscription.id) is subscription:
            del self._subscriptions[subscription.id]
            self.requests.forget(subscription.request)
            # What was not put on this link is not known to the broker, which may answer with an ERROR.
            if self.requests.link is not None and subscription.request.end_on_link:
                self.requests.link.put("UNSUBSCRIBE", [("id", subscription.id)])
        subscription.end(reason)
        self.changed.wake()

    async def keep_connected(self) -> None:
        place = failures = 0
        gives_up_at = trio.current_time() + self._give_up_after_s
        error = NoConnection(Problem.NO_ANSWER, "The first attempt was not over by then.")
        while True:
            made = self.connections
            error = await self._connect_once(self._openers[place], gives_up_at) or error
            if self.failure is not None or self.is_closing:
                self.end(error)
                return
            if made < self.connections:
                failures, gives_up_at = 0, trio.current_time() + self._give_up_after_s
            else:
                place = (place + 1) % len(self._openers)
                failures += 1
            is_round = failures % len(self._openers) == 0
            if trio.current_time() >= gives_up_at and (is_round or self._give_up_after_s > 0):
                self._give_up(error)
                return
            if failures <= 1:
                # The loss, and the first failure after it, however many attempts there will be.
                _log.warning("%s Trying to connect again.", error)
            if is_round:
                await trio.sleep_until(min(trio.current_time() + self._back_off.next_wait_s(), gives_up_at))

    async def _connect_once(self, opener: Opener, gives_up_at: float) -> NoConnection | None:
        """One connection, from its beginning to its end; returns why it ended, None if the time was up."""
        # Who wants no second attempt still wants the first.
        with trio.CancelScope(deadline=gives_up_at if self._give_up_after_s else inf) as scope:
            try:
                async with opener() as link:
                    scope.deadline = inf
                    await self._converse(link)
            except (LoginRefused, ProducerReplaced) as error:
                self.end(error)
                return error
            except NoConnection as error:
                return error
        return None

    async def _converse(self, link: Link) -> None:
        """Raises NoConnection."""
        began_at = trio.current_time()
        self.connections += 1
        link.on_sent = self.requests.room.wake
        self.calls.connected(link)
        subscribing = [each.request for each in self._subscriptions.values()]
        self.requests.connected(link, subscribing, is_careful=self._is_suspicious)
        self._is_suspicious = False
        self.changed.wake()
        reason: NoConnection | None = None
        try:
            await link.run(self._take, self._wait_until_readable)
        except NoConnection as error:
            reason = error
            if isinstance(error, Refused):
                self._attribute(error)
            raise
        finally:
            self.requests.disconnected(reason)
            self.calls.disconnected()
            for subscription in self._subscriptions.values():
                subscription.disconnected()
            if trio.current_time() - began_at >= STABLE_S:
                self._back_off.reset()

    def _attribute(self, refused: Refused) -> None:
        """Tell whom an ERROR concerns."""
        if self.requests.stop_numbering(refused):
            return
        receipt = refused.headers.get("receipt-id")
        request = self.requests.refuse(receipt, refused) if receipt is not None else None
        if request is None:
            request = self._find_cause(refused)
        if request is not None:
            # What was wrong is known, and not sent again: no reason for the others to wait longer each time.
            self._back_off.reset()
        if request is not None and request.kind is Kind.SUBSCRIBE:
            concerned = [each for each in self._subscriptions.values() if each.request is request]
            for subscription in concerned:
                del self._subscriptions[subscription.id]
                subscription.end(refused)

    def _find_cause(self, refused: Refused) -> Request | None:
        """Of an ERROR that names nothing of ours. The broker may just be about to end, so nothing is blamed for one."""
        self._is_suspicious = True
        alone = self.requests.oldest if self.requests.is_careful else None
        if alone is None or alone is not self._suspect:
            self._suspect = alone
            return None
        self._suspect = None
        return self.requests.refuse(alone.receipt, refused)

    def _take(self, frames: list[Frame]) -> None:
        link = self.requests.link
        assert link is not None
        for frame in frames:
            headers = frame.headers
            if frame.command == "RECEIPT":
                self.requests.confirm(headers.get("receipt-id", ""), headers)
            elif headers.get("subscription") == REPLY_QUEUE:
                self.calls.take_in(frame, link, self.requests)
            elif subscription := self._subscriptions.get(headers.get("subscription", "")):
                try:
                    subscription.add(frame, link)
                except TooSlow as error:
                    self.remove(subscription, error)

    async def _wait_until_readable(self) -> None:
        """While somebody waits for a receipt or an answer, reading goes on: a subscriber that publishes or calls would
        wait in vain."""
        while not (self.requests.is_awaiting or self.calls.is_awaiting) and any(
            each.is_full for each in self._subscriptions.values()
        ):
            await self.changed.wait()

    def _give_up(self, error: NoConnection) -> None:
        if not self._give_up_after_s:
            self.end(error)
            return
        gave_up = GaveUp(f"There was no connection for {self._give_up_after_s:g} seconds. {error}")
        gave_up.__cause__ = error
        self.end(gave_up)

    def end(self, reason: ClientError) -> None:
        if self.failure is not None:
            return
        self.failure = reason
        self.requests.end(reason)
        for subscription in self._subscriptions.values():
            subscription.end(reason)
        self.changed.wake()
        self.requests.room.wake()

    def check_invariants(self) -> None:
        self.requests.check_invariants()
        for subscription in self._subscriptions.values():
            subscription.check_invariants()
        if self.requests.link is not None:
            self.requests.link.check_invariants()
