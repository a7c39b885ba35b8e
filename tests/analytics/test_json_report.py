"""`report.json` and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.content import Groups
from stompbroker_report.json_report import from_json, to_json
from tests.analytics.made_content import busy_day, empty_day

if TYPE_CHECKING:
    from stompbroker_report.content import ReportContent


@pytest.mark.parametrize("content", [busy_day(), empty_day()], ids=["busy", "empty"])
def test_report_comes_back_as_it_was(content: ReportContent) -> None:
    assert from_json(to_json(content)) == content


def test_report_of_a_release_without_groups_can_be_read() -> None:
    older = json.loads(to_json(busy_day()))
    del older["groups"]

    assert from_json(json.dumps(older)) == replace(busy_day(), groups=Groups())


def test_text_is_sorted_and_ends_as_a_file_does() -> None:
    text = to_json(busy_day())

    assert text == json.dumps(json.loads(text), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"head": {}}'])
def test_other_text_is_not_a_report(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)
