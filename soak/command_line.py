"""The command line: options in, exit code out.

Exit code 0 if every promise was kept, 1 if one was broken, 2 for wrong options. Progress goes to stderr, the summary to
stdout.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from benchmarks.broken import Broken
from benchmarks.disk_directory import disk_directory
from soak.bridges_run import SHAPES, run_bridges
from soak.chaos_run import CONNECTIONS, run_chaos
from soak.churn_run import ChurnSettings, run_churn
from soak.client_run import ClientSettings, run_client
from soak.crash_run import CrashOutcome, CrashSettings, run_crashes
from soak.damage_run import DamageOutcome, run_damages
from soak.database import OWN_POSTGRES, Database, opened_database
from soak.foreign import NAMES, run_foreign
from soak.kill_plan import Moment
from soak.ledger_run import SETTINGS, run_ledger
from soak.long_run import LongRunOutcome, run_long
from soak.queue_run import SETTINGS as QUEUE_SETTINGS
from soak.queue_run import run_queues
from soak.rpc_run import RpcSettings, run_rpc
from soak.standby_run import run_standby, running_pair
from soak.through_run import CONSTANT_BYTES, PER_BYTE_IN_FLIGHT, ThroughOutcome, run_through
from soak.victim import BrokerVictim, DatabaseVictim
from tests.support.broker_process import BrokerProcess, running_broker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.stored import StoreSizes
    from soak.scene import Scene
    from soak.victim import Victim

_KILLS: Final = 25
_TAKE_OVERS: Final = 20
_MESSAGES: Final = 20_000
_LONG_MESSAGES: Final = 5_000_000
_CALLS: Final = 500
_THROUGH_MESSAGES: Final = 10_000_000
_CHAOS_FRAMES: Final = 1_000_000
_CHURN_S: Final = 120
_CHURN_CONNECTIONS: Final = 500
_CHURN_TOPICS: Final = 2_000
_DAMAGES: Final = 200
_MEBIBYTE: Final = 1024 * 1024
#: Of each broker of others, and of each publisher for each of them.
_FOREIGN_KILLS: Final = 5
_FOREIGN_MESSAGES: Final = 300
_EVERY: Final = "all"
#: Options that go with no `--database`, and why.
_ONLY_EMBEDDED: Final = {
    "bridges": "uses embedded databases",
    "foreign": "uses embedded databases",
    "ledger": "looks into the embedded database",
    "client": "looks into the embedded database",
    "chaos": "looks into the embedded database",
    "damage": "damages the file of the embedded database",
    "through": "looks at the files of the embedded database",
    "churn": "stores nothing",
}
#: Seconds between two lines of progress.
_SHOW_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    kills: int
    messages: int
    seed: int
    database: str | None
    kills_database: bool
    is_long: bool
    #: The kills meet the consumers of a queue and the members of a group.
    is_queue: bool
    #: The kills meet servers that answer calls, and the broker lives.
    is_rpc: bool
    #: Our client against a broker that comes and goes.
    is_client: bool
    #: Our client and bridges against this broker of others, or against all; None: no such run.
    foreign: str | None
    #: Only kills that test the ledger.
    is_ledger_alone: bool
    #: Take-overs by a stand-by instead of restarts.
    is_standby: bool
    #: Only kills of brokers with bridges between them.
    is_bridges: bool
    #: Random frames of the chaos run; None: no such run.
    chaos: int | None
    #: Trials of the damage run; None: no such run.
    damages: int | None
    #: Messages of the run that checks file sizes; None: no such run.
    through: int | None
    #: Only the long run.
    is_through_alone: bool
    #: Options of the churn run; None: no such run.
    churn: ChurnSettings | None


def parse(arguments: Sequence[str]) -> Options:
    """Raises `SystemExit` with code 2, and prints why, if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m soak", description="Kill the broker under load; lose nothing.")
    parser.add_argument(
        "--kills",
        metavar="N",
        type=_not_negative,
        help=f"default {_KILLS}; one more follows at the end",
    )
    parser.add_argument(
        "--messages",
        metavar="N",
        type=_positive,
        help=f"of each publisher, at least (default {_MESSAGES:,}; of the only one with --long {_LONG_MESSAGES:,}); "
        f"with --rpc calls of each caller ({_CALLS:,})",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="the same kills again; one is chosen and printed")
    parser.add_argument(
        "--database",
        metavar="URL",
        help=f"instead of the embedded SQLite file; `{OWN_POSTGRES}` starts a PostgreSQL for the run",
    )
    parser.add_argument("--kill-database", action="store_true", help="kill PostgreSQL instead of the broker")
    without_kills = parser.add_mutually_exclusive_group()
    without_kills.add_argument(
        "--queue", action="store_true", help="kill it under the members of a queue and of a group, which come and go"
    )
    without_kills.add_argument(
        "--rpc", action="store_true", help="kill servers that answer calls: each caller gets its own answers"
    )
    without_kills.add_argument(
        "--client", action="store_true", help="our client against `stompbroker spotty`; --kills are its interruptions"
    )
    without_kills.add_argument(
        "--bridges", action="store_true", help="kill brokers that have bridges between them: each message is there once"
    )
    without_kills.add_argument(
        "--foreign",
        metavar="NAME",
        nargs="?",
        const=_EVERY,
        choices=[*NAMES, _EVERY],
        help=f"our client and our bridges against {' and '.join(NAMES)}, or one of them: each ability, then kills "
        f"(default {_FOREIGN_KILLS}, with {_FOREIGN_MESSAGES} messages of each publisher)",
    )
    without_kills.add_argument("--long", action="store_true", help="no kills: millions of messages, then sizes")
    without_kills.add_argument(
        "--through",
        metavar="N",
        type=_positive,
        nargs="?",
        const=_THROUGH_MESSAGES,
        help=f"no kills: see that the files stay small while N messages pass through (default {_THROUGH_MESSAGES:,}; "
        "without any options this is done after the kills)",
    )
    without_kills.add_argument(
        "--ledger", action="store_true", help="kill it while it exports, and see that each record is there once"
    )
    without_kills.add_argument(
        "--damage",
        metavar="N",
        type=_positive,
        nargs="?",
        const=_DAMAGES,
        help=f"damage the database file at random N times (default {_DAMAGES}), and see that none goes unnoticed",
    )
    without_kills.add_argument(
        "--chaos",
        metavar="N",
        type=_positive,
        nargs="?",
        const=_CHAOS_FRAMES,
        help=f"no kills: N random valid frames of every kind (default {_CHAOS_FRAMES:,}), all invariants checked",
    )
    without_kills.add_argument(
        "--churn",
        metavar="S",
        type=_positive,
        nargs="?",
        const=_CHURN_S,
        help=f"no kills: topics and connections that come and go for S seconds (default {_CHURN_S})",
    )
    without_kills.add_argument(
        "--standby",
        action="store_true",
        help=f"two brokers on a PostgreSQL started for the run: one is lost, the other takes over (default "
        f"{_TAKE_OVERS} times, in three ways)",
    )
    parser.add_argument(
        "--churn-connections",
        metavar="N",
        type=_positive,
        default=_CHURN_CONNECTIONS,
        help=f"a second, with --churn (default {_CHURN_CONNECTIONS:,})",
    )
    parser.add_argument(
        "--churn-topics",
        metavar="N",
        type=_positive,
        default=_CHURN_TOPICS,
        help=f"a second, with --churn; as many of each connection (default {_CHURN_TOPICS:,})",
    )
    parsed = parser.parse_args(arguments)
    if parsed.kill_database and parsed.database != OWN_POSTGRES:
        parser.error(f"--kill-database needs --database {OWN_POSTGRES}: another one is not ours to kill")
    if parsed.kill_database and parsed.long:
        parser.error("--long kills nothing")
    if parsed.kill_database and parsed.rpc:
        parser.error("--rpc kills servers, and no database")
    for name, why in _ONLY_EMBEDDED.items():
        if getattr(parsed, name) and parsed.database:
            parser.error(f"--{name} {why}")
    if parsed.standby and parsed.database not in (None, OWN_POSTGRES):
        parser.error("--standby starts a PostgreSQL of its own")
    churn = ChurnSettings(
        connections_per_s=parsed.churn_connections, topics_per_s=parsed.churn_topics, duration_s=parsed.churn or 0
    )
    kills = _TAKE_OVERS - 1 if parsed.standby else _FOREIGN_KILLS if parsed.foreign else _KILLS
    if parsed.long:
        messages = _LONG_MESSAGES
    elif parsed.foreign:
        messages = _FOREIGN_MESSAGES
    else:
        messages = _CALLS if parsed.rpc else _MESSAGES
    return Options(
        kills=kills if parsed.kills is None else parsed.kills,
        messages=parsed.messages or messages,
        seed=secrets.randbelow(1_000_000) if parsed.seed is None else parsed.seed,
        database=OWN_POSTGRES if parsed.standby else parsed.database,
        kills_database=parsed.kill_database,
        is_long=parsed.long,
        is_queue=parsed.queue,
        is_rpc=parsed.rpc,
        is_client=parsed.client,
        foreign=parsed.foreign,
        is_ledger_alone=parsed.ledger,
        is_standby=parsed.standby,
        is_bridges=parsed.bridges,
        chaos=parsed.chaos,
        damages=parsed.damage,
        through=_THROUGH_MESSAGES if not arguments else parsed.through,
        is_through_alone=parsed.through is not None,
        churn=churn if parsed.churn else None,
    )


def _positive(text: str) -> int:
    return _at_least(1, text)


def _not_negative(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is too few, {least} is the least")
    return number


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.churn is not None:
        return _run_churn(options.churn)
    with ExitStack() as opened:
        directory = opened.enter_context(disk_directory("stompbroker-soak-"))
        database_directory = directory / "postgres"
        database_directory.mkdir()
        database = opened.enter_context(opened_database(options.database, database_directory))
        exit_codes = []
        if options.is_long:
            exit_codes.append(_run_long(options, directory, database))
        elif options.is_rpc:
            exit_codes.append(_run_rpc(options, directory, database))
        elif options.is_client:
            exit_codes.append(_run_client(options, directory))
        elif options.is_bridges:
            exit_codes.append(_run_bridges(options, directory))
        elif options.foreign is not None:
            exit_codes.append(_run_foreign(options, options.foreign, directory))
        elif options.is_ledger_alone:
            exit_codes.append(_run_ledger(options, directory))
        elif options.is_standby:
            exit_codes.append(_run_standby(options, directory, database))
        elif options.chaos is not None:
            exit_codes.append(_run_chaos(options.chaos, options.seed, directory))
        elif options.damages is not None:
            exit_codes.append(_run_damages(options.damages, options.seed, directory))
        elif not options.is_through_alone:
            exit_codes.append(_run_crashes(options, directory, database))
        if options.through is not None:
            exit_codes.append(_run_through(options.through, directory))
        return max(exit_codes)


# Crashes -------------------------------------------------------------------------------------------------------------


def _run_crashes(options: Options, directory: Path, database: Database) -> int:
    print(f"seed {options.seed}", flush=True)
    settings = CrashSettings(messages=options.messages, kills=options.kills, seed=options.seed)
    run = run_queues if options.is_queue else run_crashes
    changed = QUEUE_SETTINGS.items() if options.is_queue else ()
    arguments = [part for name, value in changed for part in ("--set", f"{name}={value}")]
    broker = BrokerProcess(directory, [*database.arguments, *arguments])
    try:
        broker.start()
        victim: Victim = BrokerVictim(broker)
        if options.kills_database:
            assert database.server is not None
            victim = DatabaseVictim(database.server, broker)
        line = ProgressLine()
        started_at = time.monotonic()
        outcome = trio.run(lambda: run(settings, broker, victim, watch=lambda scene: _show(line, scene, options)))
        line.end()
        complaints = outcome.complaints()
        if not broker.is_running:
            complaints.append(f"the broker has died:\n{broker.end_of_log()}")
        else:
            broker.stop()
    finally:
        broker.clean_up()
    _print_crashes(outcome, complaints, elapsed_s=time.monotonic() - started_at)
    return 1 if complaints else 0


def _run_standby(options: Options, directory: Path, database: Database) -> int:
    print(f"seed {options.seed}", flush=True)
    settings = CrashSettings(messages=options.messages, kills=options.kills, seed=options.seed)
    line = ProgressLine()
    assert database.url is not None
    with running_pair(directory, database.url) as pair:
        started_at = time.monotonic()

        def watch(scene: Scene) -> None:
            _show(line, scene, options)

        outcome = trio.run(lambda: run_standby(settings, pair, directory / "lake", watch=watch))
        line.end()
        complaints = outcome.complaints()
        for broker in pair.brokers:
            if not broker.is_running or "Traceback" in broker.log():
                complaints.append(f"a broker has died, or logged a mistake of ours:\n{broker.end_of_log()}")
    _print_crashes(outcome, complaints, elapsed_s=time.monotonic() - started_at)
    return 1 if complaints else 0


def _show(line: ProgressLine, scene: Scene, options: Options) -> None:
    counts = ", ".join(
        f"{scene.count(moment):,} {name}"
        for moment, name in (
            (Moment.RECEIPTED, "receipts"),
            (Moment.DELIVERED, "deliveries"),
            (Moment.ACK_CONFIRMED, "confirmed ACKs"),
        )
    )
    line.show(f"kill {scene.kills} of {options.kills + 1}: {counts}")


def _print_crashes(outcome: CrashOutcome, complaints: list[str], *, elapsed_s: float) -> None:
    tally = outcome.tally
    print(f"{outcome.kills} kills in {elapsed_s:.0f} s")
    print(f"{tally.receipted:,} messages with a receipt, {tally.sent_again:,} sent again for want of one")
    print(f"{tally.deliveries:,} deliveries, {tally.delivered_again:,} of them again")
    print(f"{tally.confirmed_acks:,} ACKs with a receipt")
    for text in outcome.remarks:
        print(text)
    for complaint in complaints:
        print(complaint)
    print("BROKEN" if complaints else outcome.praise)


# Request and reply ---------------------------------------------------------------------------------------------------


def _run_rpc(options: Options, directory: Path, database: Database) -> int:
    print(f"seed {options.seed}", flush=True)
    settings = RpcSettings(calls=options.messages, kills=options.kills, seed=options.seed)
    line = ProgressLine()
    started_at = time.monotonic()
    broker = BrokerProcess(directory, list(database.arguments))
    try:
        broker.start()
        outcome = trio.run(lambda: run_rpc(settings, broker, show=line.show))
        line.end()
        complaints = outcome.complaints()
        if broker.is_running:
            broker.stop()
        else:
            complaints.append(f"the broker has died:\n{broker.end_of_log()}")
    finally:
        broker.clean_up()
    print(f"{outcome.kills} kills of servers in {time.monotonic() - started_at:.0f} s")
    for text in outcome.lines() + complaints:
        print(text)
    print(
        "BROKEN" if complaints else "Each caller got its own answers, and nobody waited for a server that is not there."
    )
    return 1 if complaints else 0


# Bridges -------------------------------------------------------------------------------------------------------------


def _run_bridges(options: Options, directory: Path) -> int:
    print(f"seed {options.seed}", flush=True)
    complaints: list[str] = []
    for shape in SHAPES:
        line = ProgressLine()
        started_at = time.monotonic()
        outcome = run_bridges(shape, directory, kills=options.kills, seed=options.seed, show=line.show)
        line.end()
        elapsed_s = time.monotonic() - started_at
        print(f"{shape}: {outcome.kills} kills in {elapsed_s:.0f} s; {outcome.expected:,} messages at each broker")
        complaints += outcome.complaints()
    for complaint in complaints:
        print(complaint)
    print("BROKEN" if complaints else "Nothing missing, nothing twice, nothing circling.")
    return 1 if complaints else 0


def _run_foreign(options: Options, name: str, directory: Path) -> int:
    print(f"seed {options.seed}", flush=True)
    line = ProgressLine()
    try:
        return run_foreign(
            None if name == _EVERY else name,
            directory,
            kills=options.kills,
            messages=options.messages,
            seed=options.seed,
            show=lambda text: line.show(text) if text else line.end(),
        )
    finally:
        line.end()


# The ledger ----------------------------------------------------------------------------------------------------------


def _run_ledger(options: Options, directory: Path) -> int:
    print(f"seed {options.seed}", flush=True)
    line = ProgressLine()
    started_at = time.monotonic()
    with running_broker(directory, **SETTINGS) as broker:
        outcome = run_ledger(broker, kills=options.kills, seed=options.seed, show=line.show)
    line.end()
    complaints = outcome.complaints()
    print(f"{outcome.kills} kills in {time.monotonic() - started_at:.0f} s")
    print(f"{len(outcome.confirmed):,} ACKs with a receipt, {len(outcome.answered - outcome.confirmed):,} without")
    print(f"{len(outcome.in_lake):,} records in the lake, {len(outcome.in_database):,} in the database alone")
    for complaint in complaints:
        print(complaint)
    print("BROKEN" if complaints else "Each delivery that was confirmed has one record, and none has two.")
    return 1 if complaints else 0


# The client ----------------------------------------------------------------------------------------------------------


def _run_client(options: Options, directory: Path) -> int:
    print(f"seed {options.seed}", flush=True)
    line = ProgressLine()
    settings = ClientSettings(messages=options.messages, interruptions=options.kills, seed=options.seed)
    outcome = run_client(settings, directory, show=line.show)
    line.end()
    for text in (*outcome.lines(), *outcome.complaints):
        print(text)
    praise = "Each message is in the log once, in order, and acknowledged; each answer came to who had asked."
    print("BROKEN" if outcome.complaints else praise)
    return 1 if outcome.complaints else 0


# Chaos ---------------------------------------------------------------------------------------------------------------


def _run_chaos(frames: int, seed: int, directory: Path) -> int:
    print(f"seed {seed}", flush=True)
    line = ProgressLine()
    outcome = trio.run(lambda: run_chaos(directory, frames=frames, seed=seed, show=line.show))
    line.end()
    seen = outcome.seen
    rate = seen.frames / outcome.elapsed_s
    print(f"{seen.frames:,} frames in {outcome.elapsed_s:.0f} s, {rate:,.0f} a second, {seen.deliveries:,} deliveries")
    print(
        f"{seen.connections:,} connections, {CONNECTIONS} at a time; {seen.expected_errors:,} of them were taken over"
    )
    print(f"{len(seen.promised):,} messages with a receipt; all invariants checked {outcome.checks:,} times")
    for complaint in outcome.complaints:
        print(complaint)
    print("BROKEN" if outcome.complaints else "No ERROR, no broken invariant, no traceback, each record once.")
    return 1 if outcome.complaints else 0


# Damage --------------------------------------------------------------------------------------------------------------


def _run_damages(trials: int, seed: int, directory: Path) -> int:
    print(f"seed {seed}", flush=True)
    line = ProgressLine()
    started_at = time.monotonic()
    outcome = run_damages(directory, trials=trials, seed=seed, show=line.show)
    line.end()
    print(f"{trials} damages in {time.monotonic() - started_at:.0f} s")
    for text in damage_lines(outcome):
        print(text)
    return 1 if outcome.complaints else 0


def damage_lines(outcome: DamageOutcome) -> list[str]:
    return [
        *(f"{count:>4}  {kind}: {result.value}" for (kind, result), count in sorted(outcome.results.items(), key=str)),
        f"{outcome.delivered:,} messages delivered; {outcome.kept_back:,} kept back where damage was told",
        *outcome.complaints,
        "BROKEN" if outcome.complaints else "No damage went unnoticed, and nothing was delivered altered.",
    ]


# A long run ----------------------------------------------------------------------------------------------------------


def _run_long(options: Options, directory: Path, database: Database) -> int:
    data = directory / "data"
    command = [
        sys.executable,
        "-m",
        "stompbroker",
        "serve",
        "--port",
        "0",
        "--http-port",
        "0",
        "--data",
        str(data),
        *database.arguments,
    ]
    line = ProgressLine()
    try:
        outcome = run_long(options.messages, data, command, show=line.show)
    except Broken as broken:
        line.end()
        print(f"BROKEN: {broken}")
        return 1
    line.end()
    _print_long(outcome)
    return 0


def _print_long(outcome: LongRunOutcome) -> None:
    rate = outcome.messages / outcome.elapsed_s
    print(f"{outcome.messages:,} messages in {outcome.elapsed_s:.0f} s, {rate:,.0f} a second")
    for name, values in (
        ("memory before, at most, at the end", ("resident_before", "resident_peak", "resident_after")),
        ("files at most, at the end, after the broker has ended", ("files_peak", "files_running", "files_ended")),
    ):
        sizes = [getattr(outcome, f"{value}_bytes") / _MEBIBYTE for value in values]
        print(f"{name}: {', '.join(f'{size:.1f}' for size in sizes)} MiB")


# Files that stay small ------------------------------------------------------------------------------------------------


def _run_through(messages: int, directory: Path) -> int:
    data = directory / "through"
    command = [sys.executable, "-m", "stompbroker", "serve", "--port", "0", "--data", str(data)]
    line = ProgressLine()
    try:
        outcome = run_through(messages, data, command, show=line.show)
    except Broken as broken:
        line.end()
        print(f"BROKEN: {broken}")
        return 1
    line.end()
    for text in through_lines(outcome):
        print(text)
    return 0 if outcome.is_bounded else 1


def through_lines(outcome: ThroughOutcome) -> list[str]:
    rate = outcome.messages / outcome.elapsed_s
    allowed = f"{CONSTANT_BYTES / _MEBIBYTE:.0f} MiB + {PER_BYTE_IN_FLIGHT} × in flight"
    in_flight_bytes = outcome.in_flight_bytes / _MEBIBYTE
    return [
        f"{outcome.messages:,} messages through in {outcome.elapsed_s:.0f} s, {rate:,.0f} a second",
        f"in flight at most: {outcome.in_flight_messages:,} messages, {in_flight_bytes:.2f} MiB",
        f"files at most: {_sizes(outcome.peak)}",
        f"files at the end: {_sizes(outcome.end)}; after the broker has ended: {_sizes(outcome.ended)}",
        f"files at most are {outcome.peak.total_bytes / outcome.in_flight_bytes:.1f} × what was in flight at most; "
        f"memory at most {outcome.resident_peak_bytes / _MEBIBYTE:.1f} MiB",
        f"{'Within' if outcome.is_bounded else 'BROKEN: above'} the {outcome.allowed_bytes / _MEBIBYTE:.1f} MiB that "
        f"are allowed: {allowed}.",
    ]


def _sizes(sizes: StoreSizes) -> str:
    total, log = sizes.total_bytes / _MEBIBYTE, sizes.log_bytes / _MEBIBYTE
    return f"{total:.1f} MiB ({log:.1f} of it write-ahead log)"


# What comes and goes -------------------------------------------------------------------------------------------------


def _run_churn(settings: ChurnSettings) -> int:
    line = ProgressLine()
    try:
        outcome = run_churn(settings, show=line.show)
    except Broken as broken:
        line.end()
        print(f"BROKEN: {broken}")
        return 1
    line.end()
    complaints = outcome.complaints()
    for text in outcome.lines() + complaints:
        print(text)
    print("BROKEN" if complaints else "Nobody had to wait for long, and memory has stopped growing.")
    return 1 if complaints else 0


@final
class ProgressLine:
    """One line that is overwritten on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + _SHOW_S
            sys.stderr.write(f"\r\033[K{text}" if self._is_terminal else f"{text}\n")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\n")
