"""Composition root: makes the stores, opens the listeners, starts the actors, and says in which order all of it ends.

Law: no behaviour of its own. Shutdown is scope nesting, innermost first:

    store           the database, its lock
      services      journal, page reader, upkeep, checker, exporter, snapshots, distributor, garbage collector, sampler,
                    pacemaker, log throttle, control listener, management endpoint
        connections one worker per client
          accepting one listener per address

1. Accepting ends at once: nobody new comes in.
2. The journal has half of `shutdown_grace_s` to finish what it was handed. Then every client is told by an ERROR frame
   behind whatever it is still owed; all of that within `shutdown_grace_s`. The services must still run: what is owed
   may need the journal and the distributor, and time limits the pacemaker.
3. When the clients are gone, the journal writes what has changed, for which it has `shutdown_grace_s` too.
4. Then the services end, then the store is closed. The data directory, and with it the lock, is let go last.

A second signal cancels everything at once.

It is long because it names every part once, and nobody else knows them all.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from stompbroker import __version__
from stompbroker.actors import (
    checker,
    control_listener,
    distributor,
    exporter,
    garbage_collector,
    journal,
    listener,
    pacemaker,
    page_reader,
    sampler,
    snapshots,
    upkeep,
    worker,
)
from stompbroker.changes import DeadLetters, IdleSubscriptions, MemoryJournal
from stompbroker.clock import NANOSECONDS, Clock
from stompbroker.config import EMBEDDED, MEMORY, MIN_TOKEN
from stompbroker.config.data_directory import hold
from stompbroker.control import Control, SeenLedger
from stompbroker.delivery import Records, Registry
from stompbroker.errors import OperatorError, PeerViolation
from stompbroker.ids import ConnectionId
from stompbroker.journal import Numbers, ProcessWriter, StoreJournal, StoreWriter, ThreadWriter, restore
from stompbroker.ledger import Exports, Rounds
from stompbroker.log_throttle import LogThrottle
from stompbroker.loop_gauge import LoopGauge
from stompbroker.management import Access, Management
from stompbroker.memory_budget import MemoryBudget
from stompbroker.message_ids import MessageIds
from stompbroker.sessions import (
    Dispatch,
    FlushQueue,
    RefusalPace,
    Session,
    SessionContext,
    SessionSettings,
    SessionTimers,
)
from stompbroker.stomp import Limits
from stompbroker.storage import Kept, Ownership, Store, WritingProcess, open_store, recognise
from stompbroker.totals import Totals
from stompbroker.transport import (
    Endpoint,
    Scheme,
    Traffic,
    bound_endpoint,
    open_listeners,
    open_sockets,
    raise_descriptor_limit,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stompbroker.config import Settings
    from stompbroker.transport import TcpListener, Transport

__all__ = ["Broker", "run", "serve"]

_NS_PER_MS = NANOSECONDS // 1000
#: How long a thread may run Python before another may. The journal's thread works beside a busy event loop, and with
#: the usual 5 ms each return from the database waits that long (a batch of 500 rows: 18 against 147 µs a row).
SWITCH_INTERVAL_S: Final = 0.0005
#: How long a store may take to be closed, its last write included.
CLOSE_S: Final = 5.0
#: New objects after which these are searched for reference cycles, and after how many such searches all that came since
#: the last one are searched again. Few, since a search looks at each of them: 15,000 took up to 30 ms where several
#: programs shared a processor. What has ended is freed without any, so they find nothing, and more save nothing.
YOUNG_OBJECTS, YOUNG_SEARCHES = 1_000, 2

log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    """A store that is ours, and what it had kept."""

    store: Store
    writer: StoreWriter
    ownership: Ownership
    kept: Kept


class Broker:
    """The parts of one running broker, for those who start, stop and look at it."""

    def __init__(self, settings: Settings, opened: OpenedStore | None = None) -> None:
        """Without a store everything is kept in memory, and nothing can be durable."""
        self.settings = settings
        self.clock = Clock()
        self.budget = MemoryBudget(settings.memory_limit)
        self.totals = Totals()
        self.registry = Registry(
            settings.policies(),
            self.budget,
            self.totals,
            max_topics=settings.max_topics,
            can_store=opened is not None,
            records=Records(self.clock.now_ns) if opened is not None and settings.ledger else None,
        )
        self.throttle = LogThrottle()
        flush_queue = FlushQueue()
        self.dispatch = Dispatch(self.registry.ready, flush_queue, self.clock)
        self.sessions: dict[ConnectionId, Session] = {}
        self.stretches = LoopGauge()
        self.opened = opened
        self.journal: StoreJournal | MemoryJournal
        #: What the ledger has in the store, and when it goes to the lake; None without a ledger.
        self.exports: Exports | None = None
        self.rounds: Rounds | None = None
        if opened is None:
            self.journal = MemoryJournal(self.clock)
            message_ids = MessageIds.for_memory()
        else:
            restore(opened.kept, self.registry, self.clock.now_ns())
            if settings.ledger:
                self.exports = Exports(
                    opened.kept.exports,
                    opened.kept.gathered,
                    self.registry.unsaved.filled.wake,
                    store_id=opened.ownership.store_id,
                    start_number=opened.ownership.start_number,
                    export_bytes=settings.lake_export_bytes,
                )
                self.rounds = Rounds(self.exports, self.clock, interval_s=settings.lake_export_interval_s)
            self.journal = StoreJournal(
                self.registry,
                self.clock,
                self.budget,
                Numbers(opened.ownership.start_number),
                engine="postgresql" if settings.database else "sqlite",
                last_batch_number=opened.ownership.batch,
                min_free_bytes=settings.min_free_bytes,
                exports=self.exports,
            )
            message_ids = MessageIds(opened.ownership.store_id, opened.ownership.start_number)
        self.dead_letters = DeadLetters(self.registry, self.journal, message_ids, self.clock)
        self.registry.bury = self.dead_letters.give_up
        self.control = Control(
            self.registry,
            self.sessions,
            self.journal,
            self.totals,
            self.stretches,
            self.clock,
            message_ids=message_ids,
            store=None if opened is None else opened.store,
            ledger=self._seen_ledger(),
        )
        self.rhythm = SessionTimers()
        self.worker_context = worker.WorkerContext(
            traffic=Traffic(),
            budget=self.budget,
            dispatch=self.dispatch,
            stretches=self.stretches,
            throttle=self.throttle,
            block_timeout_s=settings.block_timeout_s,
        )
        self.around = SessionContext(
            registry=self.registry,
            journal=self.journal,
            budget=self.budget,
            flush_queue=flush_queue,
            clock=self.clock,
            rhythm=self.rhythm,
            message_ids=message_ids,
            settings=_session_settings(settings),
            refusal_pace=RefusalPace(),
            throttle=self.throttle,
            server=settings.server_header,
        )
        #: Set to stop gracefully, and when that is done.
        self.stop = trio.Event()
        self.stopped = trio.Event()
        #: What it listens on, once it does.
        self.endpoints: list[Endpoint] = []
        self.management: Management | None = None
        self.management_address: str | None = None

    async def start_services(self, nursery: trio.Nursery) -> None:
        """Start what every connection needs."""
        await nursery.start(self.throttle.run)
        topic_idle_ns = int(self.settings.topic_idle_s * NANOSECONDS)
        if self.opened is not None and isinstance(self.journal, StoreJournal):
            await nursery.start(journal.run, self.journal, self.opened.writer, self.dispatch, self.stretches)
            await nursery.start(page_reader.run, self.registry.pages, self.opened.store, self.journal.health)
            await nursery.start(
                upkeep.run, self.registry, self.journal, self.opened.store, self.clock, self.journal.health
            )
            if not self.opened.ownership.was_closed:
                await nursery.start(checker.run, self.registry, self.opened.store, self.journal.health)
            if self.exports is not None and self.rounds is not None:
                await nursery.start(
                    exporter.run, self.exports, self.rounds, self._lake(), self.clock, self.journal.wait_idle
                )
                await nursery.start(snapshots.run, self.control.backlog, self.exports, self.rounds, self.clock)
        await nursery.start(
            distributor.run, self.registry, self.dispatch, self.dead_letters, self.clock, self.stretches
        )
        await nursery.start(
            partial(garbage_collector.run, topic_idle_ns=topic_idle_ns),
            self.registry,
            IdleSubscriptions(self.registry, self.journal, self.clock),
            self.clock,
            self.stretches,
            self.worker_context.traffic,
        )
        await nursery.start(sampler.run, self.control.sampler)
        await nursery.start(pacemaker.run, self.rhythm, self.clock, self.stretches)

    def _seen_ledger(self) -> SeenLedger | None:
        if self.exports is None or self.rounds is None:
            return None
        return SeenLedger(self.exports, self.rounds, self.settings.lake_place)

    def _lake(self) -> exporter.Lake:
        assert self.opened is not None
        return exporter.Lake(
            place=self.settings.lake_place,
            store_id=self.opened.ownership.store_id,
            database=self.settings.database,
            data=str(self.settings.data.absolute()),
            retention_days=self.settings.lake_retention_days,
        )

    async def serve_connection(self, transport: Transport) -> None:
        """Serve one client from its first byte to its last."""
        self.totals.connections_opened += 1
        connection_id = ConnectionId(self.totals.connections_opened)
        session = Session(self.around, connection_id, transport.peer)
        self.sessions[connection_id] = session
        try:
            await worker.run(transport, session, self.worker_context)
        finally:
            del self.sessions[connection_id]
            self.totals.bytes_in += session.bytes_in
            self.totals.bytes_out += session.outbox.sent_bytes

    def dismiss_clients(self) -> None:
        violation = PeerViolation("broker is shutting down", "connect again when it is back")
        for session in list(self.sessions.values()):
            session.fail(violation)


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[Endpoint, Path, str | None], None] | None = None,
    writing: WritingProcess | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises OperatorError when it cannot start.

    An embedded store is written to by the process `writing`, if there is one, and by a thread otherwise.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            broker: Broker = await nursery.start(partial(run, settings, writing=writing))
            if on_ready is not None:
                on_ready(broker.endpoints[0], settings.data, broker.management_address)
            nursery.start_soon(_stop_on_signals, signals, broker, nursery.cancel_scope)
            await broker.stopped.wait()
            nursery.cancel_scope.cancel()


async def _stop_on_signals(signals: AsyncIterator[int], broker: Broker, everything: trio.CancelScope) -> None:
    """The first signal asks, the second one does not."""
    log.info("stopping, because of a signal", signal=signal.Signals(await anext(signals)).name)
    broker.stop.set()
    await anext(signals)
    log.warning("stopping at once, because of a second signal")
    everything.cancel()


async def run(
    settings: Settings,
    *,
    writing: WritingProcess | None = None,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until its `stop` is set. Tells its parent the `Broker` once it listens."""
    descriptors = raise_descriptor_limit()
    with hold(settings.data) as directory:
        async with AsyncExitStack() as resources:
            broker = Broker(settings, await resources.enter_async_context(opened_store(settings, writing)))
            listeners = await open_listeners([Endpoint(Scheme.STOMP, settings.host, settings.port)])
            for each in listeners:
                resources.push_async_callback(each.aclose)
            control_socket = trio.SocketListener(trio.socket.from_stdlib_socket(directory.listen_for_control()))
            await resources.enter_async_context(control_socket)
            broker.management = await _open_management(broker, resources)
            broker.endpoints = [each.endpoint for each in listeners]
            log.info(
                "broker is starting",
                version=__version__,
                listening=[endpoint.address for endpoint in broker.endpoints],
                data=str(settings.data),
                store="memory" if broker.opened is None else broker.opened.store.where,
                management=broker.management_address,
                max_connections=settings.max_connections,
                open_files=descriptors,
            )
            _leave_cycles_to_the_collector()
            async with trio.open_nursery() as services:
                await broker.start_services(services)
                await services.start(control_listener.run, control_socket, broker.control, broker.throttle)
                if broker.management is not None:
                    services.start_soon(broker.management.run)
                await _serve_clients(broker, listeners, task_status)
                with trio.move_on_after(settings.shutdown_grace_s) as last_write:
                    await broker.journal.wait_idle()
                if last_write.cancelled_caught:
                    log.error(
                        "the store did not take what has changed last: none of it was confirmed to a client, and what "
                        "was acknowledged without a receipt will be delivered again",
                        units=broker.journal.statistics().backlog_units,
                    )
                services.cancel_scope.cancel()
        log.info("broker has stopped")
    broker.stopped.set()


@asynccontextmanager
async def opened_store(settings: Settings, writing: WritingProcess | None = None) -> AsyncIterator[OpenedStore | None]:
    """The store of these settings, ours until the block ends; None for a broker that keeps everything in memory.

    Raises OperatorError when it cannot be had. The data directory must be held.
    """
    if settings.database == MEMORY:
        yield None
        return
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    description = f"process {os.getpid()} on {socket.gethostname()}, since {started_at}"

    def take(store: Store) -> tuple[Ownership, Kept]:
        ownership, kept = store.take_ownership(description), store.load()
        if settings.database == EMBEDDED:
            recognise(settings.data, ownership.store_id)
        return ownership, kept

    store = await trio.to_thread.run_sync(open_store, settings.database, settings.data)
    writer: StoreWriter = ThreadWriter(store)
    try:
        ownership, kept = await trio.to_thread.run_sync(take, store)
        if writing is not None and settings.database == EMBEDDED:
            writer = process_writer = ProcessWriter(writing, store)
            await process_writer.adopt()
        yield OpenedStore(store=store, writer=writer, ownership=ownership, kept=kept)
    finally:
        # Shielded, because nothing else closes it; and given up in the end, because a store that hangs is no reason to.
        with trio.move_on_after(CLOSE_S, shield=True):
            await writer.close()
            await trio.to_thread.run_sync(store.close, abandon_on_cancel=True)


async def _open_management(broker: Broker, resources: AsyncExitStack) -> Management | None:
    """Listen for HTTP, if that is wanted. Raises OperatorError."""
    settings = broker.settings
    if not settings.http_enabled:
        return None
    token = settings.http_token or _token_in(settings.http_token_file)
    try:
        listeners = await open_sockets(Endpoint(Scheme.HTTP, settings.http_host, settings.http_port))
    except OperatorError as error:
        raise OperatorError(
            f"{error} That is the management endpoint: give it another port with --http-port (0 takes any free one), "
            "or go without it with --set http_enabled=false."
        ) from error
    for each in listeners:
        await resources.enter_async_context(each)
    broker.management_address = str(bound_endpoint(listeners[0], Scheme.HTTP))
    return Management(broker.control, Access(settings.http_host, token), listeners, broker.throttle)


def _token_in(file: str) -> str | None:
    """Raises OperatorError."""
    if not file:
        return None
    try:
        token = Path(file).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The file {file} (http_token_file) cannot be read: {error}.") from error
    if len(token) < MIN_TOKEN:
        raise OperatorError(f"The token in {file} (http_token_file) must have at least {MIN_TOKEN} characters.")
    return token


async def _serve_clients(broker: Broker, listeners: list[TcpListener], task_status: trio.TaskStatus[Broker]) -> None:
    """Accept and serve until told to stop; then see everybody off."""
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            for each in listeners:
                await accepting.start(
                    partial(
                        listener.run,
                        max_connections=broker.settings.max_connections,
                        after_frame=broker.around.settings.after_frame,
                    ),
                    each,
                    connections,
                    broker.serve_connection,
                    broker.throttle,
                )
            task_status.started(broker)
            await broker.stop.wait()
            accepting.cancel_scope.cancel()
        broker.control.is_stopping = True
        for each in listeners:
            await each.aclose()
        log.info("broker is stopping", connections=len(broker.sessions), grace_s=broker.settings.shutdown_grace_s)
        connections.cancel_scope.deadline = trio.current_time() + broker.settings.shutdown_grace_s
        # What was handed to the journal is owed a receipt, which must not come behind the last word.
        with trio.move_on_after(broker.settings.shutdown_grace_s / 2):
            await broker.journal.wait_idle()
        broker.dismiss_clients()


def _leave_cycles_to_the_collector() -> None:
    """Let the interpreter search young objects for reference cycles, but never all of them at a moment of its own
    choosing: that is the garbage collector's to do, in quiet moments. What is loaded by now stays for good."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_SEARCHES, 1_000_000)


def _session_settings(settings: Settings) -> SessionSettings:
    return SessionSettings(
        limits=Limits(
            max_header_count=settings.max_header_count,
            max_header_bytes=settings.max_header_bytes,
            max_body_bytes=settings.max_body_bytes,
            max_transactions=settings.max_transactions,
            max_transaction_frames=settings.max_transaction_frames,
            max_transaction_bytes=settings.max_transaction_bytes,
        ),
        after_frame=b"\n" if settings.trailing_lf else b"",
        heart_beat_send_ms=settings.heart_beat_send_ms,
        heart_beat_want_ms=settings.heart_beat_want_ms,
        heart_beat_margin=settings.heart_beat_margin,
        connect_timeout_ns=int(settings.connect_timeout_s * NANOSECONDS),
        max_subscriptions=settings.max_subscriptions,
        max_durable_subscriptions=settings.max_durable_subscriptions,
        default_prefetch=settings.default_prefetch,
        max_prefetch=settings.max_prefetch,
        max_waiting=settings.max_waiting,
        transaction_timeout_ns=int(settings.transaction_timeout_s * NANOSECONDS),
        parking_bytes=settings.parking_bytes,
        block_timeout_ns=int(settings.block_timeout_s * NANOSECONDS),
    )
