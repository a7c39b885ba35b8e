"""Perl's Net::Stomp and Ruby's stomp do the queue work of their tutorials, against a broker in a process of its own.

Law: what the clients do is in tests/support/perl and tests/support/ruby; here their processes are started and killed.
Without the packages the tests are skipped, but fail in CI.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Final, NamedTuple, final

import pytest

from tests.support.broker_process import running_broker, wait_until
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess

_SUPPORT: Final = Path(__file__).parents[1] / "support"


class Language(NamedTuple):
    name: str
    #: Fails if the client is not there.
    check: tuple[str, ...]
    #: Of Debian and Ubuntu.
    package: str
    #: The interpreter, and the script below tests/support.
    run: tuple[str, str]


LANGUAGES: Final = (
    Language("perl", ("perl", "-MNet::Stomp", "-e", "1"), "libnet-stomp-perl", ("perl", "perl/queue_work.pl")),
    Language("ruby", ("ruby", "-rstomp", "-e", "1"), "ruby-stomp", ("ruby", "ruby/queue_work.rb")),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return topic.replace("/topic/", "/queue/")


def _needed(language: Language) -> Language:
    try:
        subprocess.run(language.check, check=True, capture_output=True, timeout=HARD_TIMEOUT_S)
    except (FileNotFoundError, subprocess.CalledProcessError):
        reason = f"no STOMP for {language.name}: apt install {language.package}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return language


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def language(request: pytest.FixtureRequest) -> Language:
    return _needed(request.param)


@pytest.fixture(params=LANGUAGES, ids=lambda language: f"called-from-{language.name}")
def calling(request: pytest.FixtureRequest) -> Language:
    """A server may be written in another language than those who call it."""
    return _needed(request.param)


@final
class Script:
    """A running client; it is killed at the end, or when it takes too long."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return line.rstrip("\n")

    def acknowledge(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(language: Language, broker: BrokerProcess, role: str, queue: str, *bodies: str) -> Iterator[Script]:
    interpreter, script = language.run
    command = [interpreter, str(_SUPPORT / script), str(broker.address.port), role, queue, *bodies]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        watchdog = Timer(HARD_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            yield Script(process)
        finally:
            watchdog.cancel()
            process.kill()


@contextmanager
def consuming(language: Language, broker: BrokerProcess, role: str, queue: str) -> Iterator[Script]:
    with running(language, broker, role, queue) as script:
        assert script.next_line() == "ready"
        yield script


def send(language: Language, broker: BrokerProcess, queue: str, *bodies: str) -> None:
    with running(language, broker, "send", queue, *bodies) as script:
        assert script.process.wait(HARD_TIMEOUT_S) == 0


def unsettled(broker: BrokerProcess, queue: str) -> int:
    (found,) = (each for each in broker.statistics()["subscriptions"] if each["key"] == queue)
    return int(found["backlog"] + found["in_flight"])


def test_competing_workers_get_a_task_each_and_that_of_a_killed_one_goes_to_another(
    broker: BrokerProcess, queue: str, language: Language
) -> None:
    tasks = ["a", "b", "c", "d"]
    with consuming(language, broker, "work", queue) as one, consuming(language, broker, "work", queue) as two:
        send(language, broker, queue, *tasks)
        done = [one.next_line()]
        one.acknowledge()
        left_behind, mine = one.next_line(), two.next_line()

        one.kill()
        for _ in range(2):
            two.acknowledge()
            done.append(mine)
            mine = two.next_line()
        two.acknowledge()
        done.append(mine)

        assert sorted(done) == tasks
        assert left_behind in done[1:]
        assert wait_until(lambda: unsettled(broker, queue) == 0, "everything is acknowledged")


def test_tasks_wait_for_workers_that_come_later(broker: BrokerProcess, queue: str, language: Language) -> None:
    send(language, broker, queue, "early")

    with consuming(language, broker, "work", queue) as worker:
        assert worker.next_line() == "early"


def test_a_caller_gets_its_own_answers_from_servers_in_any_language(
    broker: BrokerProcess, queue: str, language: Language, calling: Language
) -> None:
    with ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(consuming(language, broker, "serve", queue))
        one = opened.enter_context(running(calling, broker, "call", queue, "one", "two", "three"))
        two = opened.enter_context(running(calling, broker, "call", queue, "four", "five"))

        assert [one.next_line() for _ in range(3)] == ["ONE", "TWO", "THREE"]
        assert [two.next_line() for _ in range(2)] == ["FOUR", "FIVE"]
        assert [one.process.wait(HARD_TIMEOUT_S), two.process.wait(HARD_TIMEOUT_S)] == [0, 0]
