"""Whatever dies, a message with a receipt reaches every durable subscriber, in order, and what is done stays done.

Law: real processes, killed with SIGKILL at moments chosen by progress and a seed; `soak` has the parts, and
`test_crash_verdict.py` shows that its judge sees what it should. `make soak` does the same for longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from soak.crash_run import CrashOutcome, CrashSettings, run_crashes
from soak.database import migrate
from soak.queue_run import SETTINGS, run_queues
from soak.verdict import Fault
from soak.victim import BrokerVictim, DatabaseVictim
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from soak.victim import Victim
    from tests.support.broker_process import BrokerProcess
    from tests.support.postgres import PostgresServer

KILLS: Final = 5
MESSAGES: Final = 1000


def crash(broker: BrokerProcess, victim: Victim, *, seed: int = 1, kills: int = KILLS) -> CrashOutcome:
    settings = CrashSettings(messages=MESSAGES, kills=kills, seed=seed)
    return trio.run(lambda: run_crashes(settings, broker, victim))


def check(outcome: CrashOutcome, *, kills: int = KILLS) -> None:
    assert outcome.complaints() == []
    # Otherwise nothing was put to the test.
    assert outcome.kills == kills + 1
    assert outcome.tally.receipted >= 3 * MESSAGES
    assert outcome.tally.confirmed_acks > MESSAGES


def test_nothing_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        outcome = crash(broker, BrokerVictim(broker))

        check(outcome)
        assert outcome.tally.sent_again > 0
        assert outcome.tally.delivered_again > 0


def test_nothing_is_lost_on_postgresql_when_the_broker_is_killed(tmp_path: Path, postgres_url: str) -> None:
    migrate(postgres_url)
    with running_broker(tmp_path, database=postgres_url) as broker:
        check(crash(broker, BrokerVictim(broker), seed=2))


def test_nothing_is_lost_and_nobody_notices_when_postgresql_is_killed(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    url = own_postgres.create_database()
    migrate(url)
    with running_broker(tmp_path, database=url) as broker:
        outcome = crash(broker, DatabaseVictim(own_postgres, broker), seed=3)

        check(outcome)
        # Publishers just waited: their connections lived, and what they had sent was stored once.
        assert outcome.tally.sent_again == 0


def test_one_member_settles_each_message_of_a_queue_and_a_group_when_the_broker_is_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path, **SETTINGS) as broker:
        settings = CrashSettings(messages=MESSAGES, kills=KILLS, seed=6)
        outcome = trio.run(lambda: run_queues(settings, broker, BrokerVictim(broker)))

        check(outcome)
        assert outcome.tally.delivered_again > 0


def test_nothing_is_lost_when_kills_follow_each_other_so_closely_that_little_happens_between(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        settings = CrashSettings(messages=50, kills=2, seed=4)
        outcome = trio.run(lambda: run_crashes(settings, broker, BrokerVictim(broker)))

        assert outcome.complaints() == []


@final
class ForgetfulVictim:
    """A broker that loses with its life what was only in the write-ahead log."""

    takes_connections_along = True

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def kill(self) -> None:
        self._broker.kill()
        for file in (*self._broker.data.glob("*.db*"), self._broker.data / "store.id"):
            file.unlink()

    async def bring_back(self) -> None:
        await trio.to_thread.run_sync(self._broker.restart)


def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    """The test of the tests: they can fail. One kill alone may come when everybody has everything."""
    with running_broker(tmp_path) as broker:
        settings = CrashSettings(messages=300, kills=6, seed=5, stall_s=3.0)
        outcome = trio.run(lambda: run_crashes(settings, broker, ForgetfulVictim(broker)))

        assert Fault.LOST in {finding.fault for finding in outcome.findings}


def test_a_store_that_forgets_a_queue_is_found_out(tmp_path: Path) -> None:
    with running_broker(tmp_path, **SETTINGS) as broker:
        settings = CrashSettings(messages=300, kills=6, seed=5, stall_s=3.0)
        outcome = trio.run(lambda: run_queues(settings, broker, ForgetfulVictim(broker)))

        assert {Fault.LOST, Fault.UNSETTLED} <= {finding.fault for finding in outcome.findings}
