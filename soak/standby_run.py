"""Two brokers on one PostgreSQL: the one that serves is lost again and again, and the other one takes over.

It is lost in three ways in turn: killed; stopped, and woken up when the other one serves; or cut off from the database
by a network that loses everything. Then it is started again, as the stand-by. Clients know both addresses. `verdict`
judges what they saw; the ledger must have no delivery twice.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow.parquet as pq
import trio
from sqlalchemy import make_url

from soak.crash_run import CrashOutcome, CrashSettings, run_crashes
from soak.history import AckConfirmed, Delivered
from soak.stomp_client import Misbehaved, round_trip
from tests.storage.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.broker_process import BrokerProcess
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from soak.scene import Scene
    from tests.support.broker_process import Address

#: Of the lease, in seconds: short, so that most of a run is not waiting.
LEASE_S: Final = 4.0
#: What a broker ends with that may be started again.
_START_AGAIN: Final = 75
_PRAISE: Final = "Nothing lost, nothing out of order, nothing acknowledged came again, nothing settled twice."


class Loss(Enum):
    KILLED = "killed"
    STOPPED = "stopped"
    CUT_OFF = "cut off"


@final
class Pair:
    """Two brokers with a way to the database each. Invariant: `serving` is one that serves, except while it is lost."""

    def __init__(self, brokers: tuple[BrokerProcess, BrokerProcess], ways: tuple[CuttingProxy, CuttingProxy]) -> None:
        self.brokers = brokers
        self._ways = dict(zip(brokers, ways, strict=True))
        self.serving, self.waiting = brokers

    @property
    def address(self) -> Address:
        return self.serving.address

    def way_of(self, broker: BrokerProcess) -> CuttingProxy:
        """Its way to the database."""
        return self._ways[broker]

    def start(self) -> None:
        self.serving.start()
        self.waiting.start(on_standby=True)

    def change_places(self) -> None:
        """The waiting one has taken over."""
        self.serving, self.waiting = self.waiting, self.serving
        self.serving.wait_ready()

    def bring_back(self) -> None:
        """The lost one, as the stand-by."""
        self._ways[self.waiting].release()
        self.waiting.start(on_standby=True)

    def clean_up(self) -> None:
        for broker in self.brokers:
            broker.clean_up()


@contextmanager
def running_pair(directory: Path, url: str, *, lease_s: float = LEASE_S, **settings: Any) -> Iterator[Pair]:
    """On the migrated database at `url`, with a lake in `directory` that both share."""
    values = {"lake": directory / "lake", "lease_s": lease_s, "standby": "true"} | settings
    arguments = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    with ExitStack() as opened:
        server = make_url(url)
        assert server.port is not None
        first, second = (opened.enter_context(cutting_proxy(server.port)) for _ in range(2))
        brokers = []
        for name, proxy in (("first", first), ("second", second)):
            (directory / name).mkdir()
            own_url = server.set(port=proxy.port).render_as_string(hide_password=False)
            brokers.append(BrokerProcess(directory / name, ["--database", own_url, *arguments]))
        pair = Pair((brokers[0], brokers[1]), (first, second))
        opened.callback(pair.clean_up)
        pair.start()
        yield pair


@final
class ServingVictim:
    """Loses the serving broker of a pair, in one way after the other."""

    takes_connections_along = True

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._losses = cycle(Loss)
        self._loss = Loss.KILLED
        self._lost_at_s = 0.0
        #: From the loss until a client was served again, in seconds.
        self.interruptions: list[tuple[Loss, float]] = []

    def kill(self) -> None:
        self._loss = next(self._losses)
        self._lost_at_s = time.monotonic()
        match self._loss:
            case Loss.KILLED:
                self._pair.serving.kill()
            case Loss.STOPPED:
                self._pair.serving.signal(signal.SIGSTOP)
            case Loss.CUT_OFF:
                self._pair.way_of(self._pair.serving).hold()

    async def bring_back(self) -> None:
        await trio.to_thread.run_sync(self._pair.change_places)
        await round_trip(self._pair.address)
        self.interruptions.append((self._loss, time.monotonic() - self._lost_at_s))
        await trio.to_thread.run_sync(self._see_it_end)
        await trio.to_thread.run_sync(self._pair.bring_back)

    def _see_it_end(self) -> None:
        lost = self._pair.waiting
        if self._loss is Loss.STOPPED:
            lost.signal(signal.SIGCONT)
        if self._loss is not Loss.KILLED and (exit_code := lost.wait_ended()) != _START_AGAIN:
            raise Misbehaved(f"the broker that was {self._loss.value} ended with {exit_code}:\n{lost.end_of_log()}")

    def describe(self) -> list[str]:
        by_loss: dict[Loss, list[float]] = {}
        for loss, seconds in self.interruptions:
            by_loss.setdefault(loss, []).append(seconds)
        return [
            f"interruption when {loss.value}: median {statistics.median(each):.2f} s, worst {max(each):.2f} s "
            f"({len(each)} take-overs; the lease is {LEASE_S:g} s)"
            for loss, each in by_loss.items()
        ]


async def run_standby(
    settings: CrashSettings, pair: Pair, lake: Path, *, watch: Callable[[Scene], None] = lambda _scene: None
) -> CrashOutcome:
    """As `run_crashes`, for a pair that is running."""
    victim = ServingVictim(pair)
    outcome = await run_crashes(settings, pair, victim, watch=watch)
    misfortunes = outcome.misfortunes
    if not misfortunes:
        misfortunes = await trio.to_thread.run_sync(_ledger_complaints, pair, lake, outcome)
    return replace(outcome, misfortunes=misfortunes, remarks=victim.describe(), praise=_PRAISE)


def _ledger_complaints(pair: Pair, lake: Path, outcome: CrashOutcome) -> list[str]:
    """Each confirmed ACK has one record, and no delivery has two."""
    command = [*PYTHON, "-m", "stompbroker", "ledger", "export", "--data", str(pair.serving.data)]
    subprocess.run(command, check=True, timeout=HARD_TIMEOUT_S, env=clean_environment(), stdout=subprocess.DEVNULL)
    files = (lake / "deliveries").glob("dt=*/[!.]*.parquet")
    records = Counter(
        (row["subscription"], row["message_id"])
        for file in files
        for row in pq.ParquetFile(file).read(["subscription", "message_id"]).to_pylist()
    )
    twice = [record for record, count in records.items() if count > 1]
    found = [f"RECORDED TWICE: {len(twice)} deliveries, {twice[0]} for instance"] if twice else []
    recorded = Counter(message_id for _, message_id in records)
    for history in outcome.histories:
        ids = dict(event for event in history.events if isinstance(event, Delivered))
        for event in history.events:
            if isinstance(event, AckConfirmed):
                recorded[ids[event.publication]] -= 1
    missing = [message_id for message_id, count in recorded.items() if count < 0]
    if missing:
        found.append(f"MISSING: no record of {len(missing)} confirmed ACKs, {missing[0]} for instance")
    return found
