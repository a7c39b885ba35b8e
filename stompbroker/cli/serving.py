"""A broker as a process: signals, and the moment from which it must not run any more.

Law: what belongs to the process and not to the broker in it, of which tests have several.
"""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from stompbroker.broker import run
from stompbroker.cli.outcome import ExitCode
from stompbroker.config import IN_DATA_DIRECTORY
from stompbroker.process_deadline import ProcessDeadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stompbroker.broker import Broker
    from stompbroker.config import Settings
    from stompbroker.storage import Standing, WritingProcess

log = structlog.get_logger()


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[Broker], None],
    on_standby: Callable[[Standing], None],
    writing: WritingProcess | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises OperatorError when it cannot start, or has lost its store.

    An embedded store is written by the process `writing` if there is one, otherwise by a thread.
    """
    deadline = ProcessDeadline(
        "The lease of the store has run out while the process stood still, so another broker may have it: nothing was "
        "sent since. Start this one again: with --standby it waits until the store is free.",
        ExitCode.START_AGAIN,
    )
    starting = partial(run, settings, writing=writing, when_waiting=on_standby, move_deadline=deadline.move)
    with deadline, trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            started: list[Broker] = []
            nursery.start_soon(_obey_signals, signals, started, nursery.cancel_scope)
            broker: Broker = await nursery.start(starting)
            started.append(broker)
            _warn_of_split_lake(settings, broker)
            on_ready(broker)
            await broker.stopped.wait()
            nursery.cancel_scope.cancel()


def _warn_of_split_lake(settings: Settings, broker: Broker) -> None:
    """Two brokers with a lake each would have a part of the ledger each. A path may be a directory that both mount; we
    cannot tell."""
    if not settings.ledger or settings.lake_place.startswith("s3://") or broker.opened is None:
        return
    if settings.standby:
        log.warning("the lake must be one that the other broker writes to as well", lake=settings.lake_place)
    elif settings.lake == IN_DATA_DIRECTORY and broker.opened.is_from_elsewhere:
        log.warning(
            "the last broker on this store had another data directory, and perhaps a lake in it",
            lake=settings.lake_place,
        )


async def _obey_signals(signals: AsyncIterator[int], started: list[Broker], everything: trio.CancelScope) -> None:
    """SIGHUP reads certificates, users and keys again. The first other signal stops gracefully, the second at once. A
    broker that has not started yet, or is on stand-by, ends at once."""
    async for number in signals:
        broker = started[0] if started else None
        if number == signal.SIGHUP:
            if broker is not None:
                broker.reload()
        elif broker is None:
            log.info("ending before it has served anybody, because of a signal", signal=signal.Signals(number).name)
            everything.cancel()
        elif not broker.stop.is_set():
            log.info("stopping, because of a signal", signal=signal.Signals(number).name)
            broker.stop.set()
        else:
            log.warning("stopping at once, because of a second signal")
            everything.cancel()
