"""The same seed has the same outages, and a log has them again."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from stompbroker.errors import OperatorError
from stompbroker.spotty import MODES, Mode, Outage, Span, outages_of, read_log
from stompbroker.spotty.plan import down_entry

if TYPE_CHECKING:
    from pathlib import Path

UP, DOWN = Span(5, 20), Span(1, 5)


def plan(seed: int, count: int = 200) -> list[Outage]:
    return list(islice(outages_of(seed, UP, DOWN, MODES), count))


def test_the_same_seed_has_the_same_outages_and_another_has_others() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_a_seed_means_the_same_in_every_release() -> None:
    assert plan(7, 3) == [
        Outage(1, Mode.KILL, 7.263, 3.604),
        Outage(2, Mode.KILL, 13.038, 2.463),
        Outage(3, Mode.KILL, 12.612, 1.15),
    ]


def test_outages_keep_to_what_was_asked_for_and_have_all_modes() -> None:
    outages = plan(1)

    assert [outage.number for outage in outages] == list(range(1, 201))
    assert {outage.mode for outage in outages} == set(MODES)
    assert all(5 <= outage.up_s <= 20 and 1 <= outage.down_s <= 5 for outage in outages)
    (only,) = islice(outages_of(1, Span(2, 2), Span(0, 0), [Mode.STOP]), 1)
    assert only == Outage(1, Mode.STOP, 2, 0)


def test_a_log_has_its_outages_again(tmp_path: Path) -> None:
    entries = [{"event": "begin", "seed": 7}]
    for outage in plan(7, 5):
        entries += [down_entry(outage), {"event": "up", "number": outage.number, "was_down_s": 9}]
    log = tmp_path / "log"
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))

    assert read_log(log) == plan(7, 5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no outages to replay"),
        ('{"event": "begin"}\n', "has no outages to replay"),
        ("what\n", "Line 1 of .* is not of a log that spotty has written: 'what'"),
        ('{"event": "begin"}\n{"event": "down", "mode": "burn", "up_s": 1, "down_s": 1}\n', "Line 2 of "),
        ('{"event": "down", "mode": "kill", "up_s": -1, "down_s": 1}\n', "Line 1 of "),
        ('{"event": "down", "mode": "kill", "up_s": NaN, "down_s": 1}\n', "Line 1 of "),
        ("[]\n", "Line 1 of "),
    ],
)
def test_what_is_no_log_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "log").write_text(text)

    with pytest.raises(OperatorError, match=sentence):
        read_log(tmp_path / "log")


def test_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read"):
        read_log(tmp_path / "log")
