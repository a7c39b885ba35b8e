"""A broker that does not start, dies or will not end is reported, with what it said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.address import Address
from benchmarks.broken import Broken
from benchmarks.broker_process import running_process

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.target import Target


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def look_until_it_raises(target: Target) -> None:
    while True:
        target.raise_if_dead()


LISTENS = "import signal, sys; print('listening on stomp://127.0.0.9:61613', flush=True)\n"


def test_the_address_is_taken_from_what_the_broker_prints(tmp_path: Path) -> None:
    script = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + LISTENS + "signal.pause()"

    with running_process(python(script), tmp_path) as target:
        assert target.address == Address("127.0.0.9", 61613)
        assert target.resident_bytes() > 0
        assert target.processor_s() >= 0


def test_what_a_broker_still_does_once_it_listens_is_over_when_it_is_measured(tmp_path: Path) -> None:
    """Otherwise a start that imports something late counts as the cost of messages."""
    works_on = "import time\nwhile time.process_time() < 0.2: pass\n"
    ends = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"

    with running_process(python(LISTENS + ends + works_on + "signal.pause()"), tmp_path) as target:
        assert target.processor_s() >= 0.15


def test_a_broker_that_ends_before_it_listens_is_broken_and_its_last_words_are_shown(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"(?s)exit code 3 before it listened.*no port for you"):
        with running_process(python("import sys; print('no port for you', file=sys.stderr); sys.exit(3)"), tmp_path):
            pytest.fail("it never listened")


def test_a_broker_that_dies_during_a_measurement_is_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="died with exit code 7"):
        with running_process(python(LISTENS + "sys.exit(7)"), tmp_path) as target:
            look_until_it_raises(target)


def test_a_broker_that_does_not_end_with_code_zero_is_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="ended with exit code -15"):
        with running_process(python(LISTENS + "signal.pause()"), tmp_path):
            pass
