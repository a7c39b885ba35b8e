"""Composition root: makes the parts, starts the actors, and says in which order all of it ends.

Law: no behaviour of its own. Shutdown is scope nesting, innermost first:

    store           the database, its lock
      services      lease keeper, journal, page reader, upkeep, checker, exporter, snapshots, distributor, garbage
                    collector, teller, sampler, pacemaker, log throttle, control listener, management endpoint
        connections one worker per client
          accepting one listener per address, one task per bridge and direction

1. Accepting and bridging end at once.
2. The journal has half of `shutdown_grace_s` to finish what it was handed. Then every client gets what it is owed, and
   an ERROR frame behind it, all within `shutdown_grace_s`. The services still run: what is owed may need the journal
   and the distributor, and time limits need the pacemaker.
3. When the clients are gone, the journal has another `shutdown_grace_s` to write what has changed.
4. Then the services end, and the store is closed. The data directory, and with it the lock, is released last.

A second signal cancels everything at once.
"""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from stompbroker import __version__
from stompbroker.access import Audit, Authenticator, Usage
from stompbroker.actors import (
    checker,
    control_listener,
    distributor,
    exporter,
    garbage_collector,
    journal,
    lease_keeper,
    listener,
    pacemaker,
    page_reader,
    sampler,
    snapshots,
    teller,
    upkeep,
    user_watcher,
    worker,
)
from stompbroker.bridges import crossings_of
from stompbroker.build import BUILD
from stompbroker.changes import DeadLetters, MemoryJournal, Outcomes, Producers, Queues
from stompbroker.clock import NANOSECONDS, Clock
from stompbroker.config import MEMORY
from stompbroker.config.data_directory import hold
from stompbroker.config.exposure import refuse_exposure
from stompbroker.control import Control, LedgerParts, left_by_bridges
from stompbroker.counting import LoopGauge, Totals
from stompbroker.delivery import Records, Registry
from stompbroker.errors import OperatorError, PeerViolation
from stompbroker.ids import ConnectionId
from stompbroker.journal import OpenedStore, StoreJournal, own_store, restore, restore_producers
from stompbroker.ledger import ExportOrder, Exports, Rounds
from stompbroker.log_throttle import LogThrottle
from stompbroker.management import answer_on_standby, open_management
from stompbroker.memory_budget import MemoryBudget
from stompbroker.message import MessageIds
from stompbroker.sessions import Dispatch, FlushQueue, RefusalPace, Session, SessionContext, SessionTimers
from stompbroker.transport import Tls, Traffic, open_listeners, raise_descriptor_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stompbroker.access import Grant
    from stompbroker.config import Settings
    from stompbroker.management import Management
    from stompbroker.storage import Standing, WritingProcess
    from stompbroker.transport import Endpoint, Listener, Transport

log = structlog.get_logger()


class Broker:
    def __init__(self, settings: Settings, opened: OpenedStore | None = None) -> None:
        """Without a store everything is kept in memory, and nothing can be durable."""
        self.settings = settings
        self.opened = opened
        self.clock = Clock()
        self.authenticator = Authenticator(settings.for_access(), self.clock)
        refuse_exposure(settings, has_login=self.authenticator.is_required)
        files = settings.tls_files()
        self.tls = None if files is None else Tls(files)
        self.usage = Usage(max_address_connections=settings.max_address_connections)
        self.budget = MemoryBudget(settings.memory_limit)
        self.totals = Totals()
        self.throttle = LogThrottle()
        self.audit = Audit(self.throttle)
        self.stretches = LoopGauge()
        self.sessions: dict[ConnectionId, Session] = {}
        self.registry = Registry(
            settings.policies(),
            self.budget,
            self.totals,
            max_topics=settings.max_topics,
            last_values_bytes=settings.last_values_bytes,
            can_store=opened is not None,
            records=Records(self.clock.now_ns) if opened is not None and settings.ledger else None,
        )
        if opened is not None:
            restore(opened.kept, self.registry, self.clock.now_ns())
        #: None without a ledger.
        self.ledger = self._make_ledger(opened) if opened is not None and settings.ledger else None
        self.journal, self.message_ids = self._make_journal()
        self.queues = Queues(self.registry, self.journal)
        self.producers = Producers(settings.max_producers, int(settings.producer_idle_s * NANOSECONDS))
        if opened is not None:
            restore_producers(opened.kept, self.producers)
        self.dead_letters = DeadLetters(self.registry, self.journal, self.queues, self.message_ids, self.clock)
        self.registry.bury = self.dead_letters.give_up
        self.outcomes = Outcomes(
            self.registry, self.journal, self.queues, self.message_ids, self.clock, self.totals, self.throttle
        )
        self.registry.telling.render = self.outcomes.render
        if isinstance(self.journal, StoreJournal):
            self.journal.outcomes = self.outcomes
        self.crossings = crossings_of((each.plan() for each in settings.bridges), self.clock.now_ns())
        self.control = Control(
            registry=self.registry,
            sessions=self.sessions,
            journal=self.journal,
            queues=self.queues,
            totals=self.totals,
            stretches=self.stretches,
            clock=self.clock,
            message_ids=self.message_ids,
            store=None if opened is None else opened.store,
            ledger=self.ledger,
            crossings=self.crossings,
        )
        flush_queue = FlushQueue()
        self.dispatch = Dispatch(self.registry.ready, flush_queue, self.clock)
        self.session_timers = SessionTimers()
        self.worker_context = worker.WorkerContext(
            traffic=Traffic(),
            budget=self.budget,
            dispatch=self.dispatch,
            stretches=self.stretches,
            throttle=self.throttle,
            authenticator=self.authenticator,
            block_timeout_s=settings.block_timeout_s,
        )
        self.session_context = self._make_session_context(flush_queue)
        #: Set to stop gracefully, and when that is done.
        self.stop = trio.Event()
        self.stopped = trio.Event()
        #: Set once it listens.
        self.endpoints: list[Endpoint] = []
        self.management: Management | None = None

    @property
    def management_url(self) -> str | None:
        return None if self.management is None else self.management.url

    def _make_ledger(self, opened: OpenedStore) -> LedgerParts:
        exports = Exports(
            opened.kept.exports,
            opened.kept.gathered,
            self.registry.unsaved.filled.wake,
            store_id=opened.ownership.store_id,
            start_number=opened.ownership.start_number,
            export_bytes=self.settings.lake_export_bytes,
        )
        rounds = Rounds(exports, self.clock, interval_s=self.settings.lake_export_interval_s)
        return LedgerParts(exports, rounds, self.settings.lake_place)

    def _make_journal(self) -> tuple[StoreJournal | MemoryJournal, MessageIds]:
        if self.opened is None:
            return MemoryJournal(self.clock), MessageIds.for_memory()
        ownership = self.opened.ownership
        store_journal = StoreJournal(
            self.registry,
            self.clock,
            self.budget,
            ownership.start_number,
            engine="postgresql" if self.settings.database else "sqlite",
            last_batch_number=ownership.batch,
            min_free_bytes=self.settings.min_free_bytes,
            exports=None if self.ledger is None else self.ledger.exports,
        )
        return store_journal, MessageIds(ownership.store_id, ownership.start_number)

    def _make_session_context(self, flush_queue: FlushQueue) -> SessionContext:
        return SessionContext(
            registry=self.registry,
            journal=self.journal,
            queues=self.queues,
            producers=self.producers,
            budget=self.budget,
            flush_queue=flush_queue,
            clock=self.clock,
            timers=self.session_timers,
            message_ids=self.message_ids,
            settings=self.settings.for_sessions(),
            refusal_pace=RefusalPace(),
            throttle=self.throttle,
            server=self.settings.server_header,
            authenticator=self.authenticator,
            usage=self.usage,
            audit=self.audit,
        )

    async def start_services(
        self, nursery: trio.Nursery, move_deadline: Callable[[float], None] = lambda _at_s: None
    ) -> None:
        start, registry, clock, stretches = nursery.start_soon, self.registry, self.clock, self.stretches
        await nursery.start(self.throttle.run)
        self.queues.declare(clock.now_ns())
        if self.opened is not None and isinstance(self.journal, StoreJournal):
            store, health = self.opened.store, self.journal.health
            if store.lease is not None:
                dismiss = partial(self.dismiss_clients, "broker may have lost its store")
                await nursery.start(lease_keeper.run, store, store.lease, move_deadline, dismiss)
            start(journal.run, self.journal, self.opened.writer, self.dispatch, stretches)
            start(page_reader.run, registry.pages, store, health)
            start(upkeep.run, registry, self.journal, store, clock, health)
            if not self.opened.ownership.was_closed:
                await nursery.start(checker.run, registry, store, health)
            if self.ledger is not None:
                order = ExportOrder(
                    database=self.settings.database,
                    data=str(self.settings.data.absolute()),
                    lake=self.ledger.lake,
                    store_id=self.opened.ownership.store_id,
                )
                exports, rounds = self.ledger.exports, self.ledger.rounds
                export = partial(exporter.run, retention_days=self.settings.lake_retention_days)
                start(export, exports, rounds, order, clock, self.journal.wait_idle)
                start(snapshots.run, self.control.kept, exports, rounds, clock)
        start(distributor.run, registry, self.dispatch, self.dead_letters, clock, stretches)
        start(
            partial(garbage_collector.run, topic_idle_ns=int(self.settings.topic_idle_s * NANOSECONDS)),
            registry,
            self.producers,
            self.journal,
            clock,
            stretches,
            self.worker_context.traffic,
        )
        start(teller.run, self.outcomes)
        start(user_watcher.run, self.authenticator, self.sessions)
        start(sampler.run, self.control.sampler)
        start(pacemaker.run, self.session_timers, clock, stretches)

    def start_bridges(self, bridging: trio.Nursery, connections: trio.Nursery) -> None:
        for left in left_by_bridges(self.control):
            log.warning(
                "a subscription of a bridge that is gone keeps its backlog for ever; delete it",
                subscription=left.key,
                backlog=left.backlog,
                command=f'stompbroker subscriptions rm "{left.key}"',
            )
        if not self.crossings:
            return  # without what a client needs
        from stompbroker.actors import bridge

        local = bridge.LocalEnd(connections, self.serve_connection)
        for crossing in self.crossings:
            bridging.start_soon(bridge.run, crossing, local, self.clock)

    async def serve_connection(self, transport: Transport, grant: Grant | None = None) -> None:
        """Until it ends. With a grant it need not log in."""
        self.totals.connections_opened += 1
        connection_id = ConnectionId(self.totals.connections_opened)
        endpoint = transport.endpoint
        session = Session(
            self.session_context,
            connection_id,
            transport.peer,
            endpoint="" if endpoint is None else str(endpoint),
            allowed_users=None if endpoint is None else endpoint.restrictions.users,
            certificate=transport.certificate,
            grant=grant,
        )
        self.sessions[connection_id] = session
        try:
            await worker.run(transport, session, self.worker_context)
        finally:
            del self.sessions[connection_id]
            self.totals.bytes_in += session.bytes_in
            self.totals.bytes_out += session.outbox.sent_bytes

    def reload(self) -> None:
        """Read certificates, users and keys again; what cannot be used is logged, and the old stays."""
        self.authenticator.reload()
        if self.tls is None:
            return
        try:
            self.tls.reload()
        except OperatorError as error:
            log.error("certificates were not read again; the old ones stay", problem=str(error))
        else:
            log.info("certificates read again")

    def dismiss_clients(self, why: str = "broker is shutting down") -> None:
        violation = PeerViolation(why, "connect again when it is back")
        for session in list(self.sessions.values()):
            session.fail(violation)


async def run(
    settings: Settings,
    *,
    writing: WritingProcess | None = None,
    when_waiting: Callable[[Standing], None] = lambda _standing: None,
    move_deadline: Callable[[float], None] = lambda _at_s: None,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until its `stop` is set. Gives its parent the `Broker` once it listens.

    On stand-by, `when_waiting` is called if it has to wait. `move_deadline` is told until when the process may live, by
    the clock of `boottime_s`, since others may serve then.
    """
    descriptors = raise_descriptor_limit()
    with hold(settings.data) as directory:
        async with AsyncExitStack() as resources:
            broker = Broker(settings, await _own_store(settings, writing, when_waiting, resources))
            resources.callback(move_deadline, math.inf)  # before the store is closed: nobody is served any more
            listeners = await open_listeners(settings.endpoints, broker.tls)
            for each in listeners:
                resources.push_async_callback(each.aclose)
            control_socket = trio.SocketListener(trio.socket.from_stdlib_socket(directory.listen_for_control()))
            await resources.enter_async_context(control_socket)
            broker.management = await open_management(
                settings, broker.control, broker.authenticator, broker.audit, broker.throttle, broker.tls
            )
            if broker.management is not None:
                resources.push_async_callback(broker.management.aclose)
            broker.endpoints = [each.endpoint for each in listeners]
            broker.control.listening = [str(endpoint) for endpoint in broker.endpoints]
            if broker.management is not None:
                broker.control.listening.append(broker.management.url)
            log.info(
                "broker is starting",
                version=__version__,
                build=BUILD,
                listening=[str(endpoint) for endpoint in broker.endpoints],
                data=str(settings.data),
                store="memory" if broker.opened is None else broker.opened.store.where,
                management=broker.management_url,
                max_connections=settings.max_connections,
                open_files=descriptors,
            )
            garbage_collector.take_over_cycles()
            async with trio.open_nursery() as services:
                await broker.start_services(services, move_deadline)
                services.start_soon(control_listener.run, control_socket, broker.control, broker.audit, broker.throttle)
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
async def opened_store(
    settings: Settings,
    writing: WritingProcess | None = None,
    when_waiting: Callable[[Standing], None] | None = None,
) -> AsyncIterator[OpenedStore | None]:
    """The store of these settings until the block ends; None for a broker that keeps everything in memory."""
    if settings.database == MEMORY:
        yield None
        return
    lease_s, data = settings.lease_in_use_s, settings.data
    async with own_store(settings.database, data, writing, lease_s=lease_s, when_waiting=when_waiting) as opened:
        yield opened


async def _own_store(
    settings: Settings,
    writing: WritingProcess | None,
    when_waiting: Callable[[Standing], None],
    resources: AsyncExitStack,
) -> OpenedStore | None:
    """The store, among `resources`. While another broker has it, the management endpoint says so, and nothing else is
    listened on: clients go to that one."""
    if not settings.standby:
        return await resources.enter_async_context(opened_store(settings, writing))
    async with trio.open_nursery() as waiting:

        def tell(standing: Standing) -> None:
            when_waiting(standing)
            if len(waiting.child_tasks) == 0:
                waiting.start_soon(answer_on_standby, settings)

        opened = await resources.enter_async_context(opened_store(settings, writing, tell))
        waiting.cancel_scope.cancel()
    return opened


async def _serve_clients(broker: Broker, listeners: list[Listener], task_status: trio.TaskStatus[Broker]) -> None:
    """Accept and serve until told to stop; then dismiss the clients."""
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            reception = listener.Reception(
                connections=connections,
                serve=broker.serve_connection,
                max_connections=broker.settings.max_connections,
                is_unwelcome=broker.authenticator.is_flooded_by,
                usage=broker.usage,
                establish_s=broker.settings.connect_timeout_s,
                after_frame=broker.session_context.settings.after_frame,
                throttle=broker.throttle,
            )
            for each in listeners:
                accepting.start_soon(listener.run, each, reception)
            broker.start_bridges(accepting, connections)
            task_status.started(broker)
            await broker.stop.wait()
            accepting.cancel_scope.cancel()
        broker.control.is_stopping = True
        for each in listeners:
            await each.aclose()
        log.info("broker is stopping", connections=len(broker.sessions), grace_s=broker.settings.shutdown_grace_s)
        connections.cancel_scope.deadline = trio.current_time() + broker.settings.shutdown_grace_s
        # Units in the journal are owed a receipt, which must not come behind the ERROR.
        with trio.move_on_after(broker.settings.shutdown_grace_s / 2):
            await broker.journal.wait_idle()
        broker.dismiss_clients()
