"""A whole broker on memory streams with a real SQLite store.

Law: every part is real but the sockets. Threads take part, so time is real too: waiting is for frames and conditions.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import trio

from stompbroker.broker import Broker, opened_store
from stompbroker.config import Settings
from stompbroker.journal.store_writer import StoreWriter
from tests.journal.watched_store import WatchedStore
from tests.support.broker_under_test import BrokerUnderTest
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@final
class BrokerOnStore(BrokerUnderTest):
    def __init__(self, broker: Broker, nursery: trio.Nursery, store: WatchedStore) -> None:
        super().__init__(broker, nursery)
        self.store = store


@asynccontextmanager
async def broker_on(data: Path, **settings: Any) -> AsyncIterator[BrokerOnStore]:
    """A broker on the database in `data`. When the block ends it is ended as by a kill; its invariants are checked."""
    made = Settings(data=data, **({"min_free_bytes": 0} | settings))
    with trio.fail_after(HARD_TIMEOUT_S):
        async with opened_store(made) as opened:
            assert opened is not None
            store = WatchedStore(opened.store)
            async with trio.open_nursery() as nursery:
                broker = Broker(made, replace(opened, store=store.as_store(), writer=StoreWriter(store.as_store())))
                await broker.start_services(nursery)
                under_test = BrokerOnStore(broker, nursery, store)
                try:
                    yield under_test
                    under_test.check_invariants()
                finally:
                    store.release()
                    nursery.cancel_scope.cancel()
