"""Whatever dies, a message with a receipt reaches every durable subscriber, in order, and what is done stays done.

Law: real processes, killed with SIGKILL at moments chosen by progress and a seed; `soak` has the parts, and
`test_crash_verdict.py` shows that its judge sees what it should. `make soak` does the same for longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from soak.crash_run import CrashOutcome, CrashSettings, run_crashes
from soak.database import migrate
from soak.victim import BrokerVictim, DatabaseVictim
from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from soak.victim import Victim
    from tests.support.broker_process import BrokerProcess
    from tests.support.postgres import PostgresServer

KILLS: Final = 5
MESSAGES: Final = 2000


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


@pytest.mark.parametrize("seed", [4, 5], ids=["seed 4", "seed 5"])
def test_the_same_with_kills_in_quick_succession(tmp_path: Path, seed: int) -> None:
    """More kills than messages would need, so that recovery itself is interrupted, too."""
    with running_broker(tmp_path) as broker:
        settings = CrashSettings(messages=50, kills=3, seed=seed)
        outcome = trio.run(lambda: run_crashes(settings, broker, BrokerVictim(broker)))

        assert outcome.complaints() == []
