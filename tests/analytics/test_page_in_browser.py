"""The page of a report as people see it: on a phone, on a desk, on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker_report.page import index, page
from tests.analytics.made_content import busy_day, empty_day, quiet_day
from tests.management.browser import DESKTOP, PHONE, running_browser, visiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

#: What a page of A4 leaves between its margins, in pixels of a style sheet.
PAPER_WIDTH = 703

PAGES = ("busy", "quiet", "empty", "index")

#: Every box whose content is wider than itself, and texts of pictures that reach beyond their picture.
CUT_OFF = """() => [
    ...[...document.querySelectorAll(".panel, .tile, .banner, td, li")]
        .filter(box => box.scrollWidth > box.clientWidth + 1),
    ...[...document.querySelectorAll("figure text")].filter(text => {
        const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
        return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
    }),
].map(box => box.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reports")
    contents = {"busy": busy_day(), "quiet": quiet_day(), "empty": empty_day()}
    for name, content in contents.items():
        (directory / f"{name}.html").write_text(page(content), encoding="utf-8")
    (directory / "index.html").write_text(index(contents.values()), encoding="utf-8")
    return directory


def width_of(shown: Page) -> int:
    width = shown.evaluate("document.documentElement.scrollWidth")
    assert isinstance(width, int)
    return width


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, (800, 900), DESKTOP], ids=["phone", "tablet", "desktop"])
def test_a_report_opens_without_errors_scrolling_sideways_or_anything_cut_off(
    browser: Browser, reports: Path, size: tuple[int, int], is_dark: bool
) -> None:
    with visiting(browser, reports.as_uri(), size=size, is_dark=is_dark) as visit:
        for name in PAGES:
            visit.page.goto(f"{reports.as_uri()}/{name}.html")

            assert width_of(visit.page) == size[0]
            assert visit.page.evaluate(CUT_OFF) == []


def test_a_report_fits_on_paper_and_paper_is_white(browser: Browser, reports: Path) -> None:
    with visiting(browser, reports.as_uri(), size=(PAPER_WIDTH, 900), is_dark=True) as visit:
        visit.page.emulate_media(media="print")
        for name in PAGES:
            visit.page.goto(f"{reports.as_uri()}/{name}.html")

            assert width_of(visit.page) == PAPER_WIDTH
            assert visit.page.evaluate(CUT_OFF) == []
            assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 34, 48)"


def test_the_dark_reaches_the_pictures(browser: Browser, reports: Path) -> None:
    colours = {}
    for is_dark in (False, True):
        with visiting(browser, reports.as_uri(), is_dark=is_dark) as visit:
            visit.page.goto(f"{reports.as_uri()}/busy.html")
            colours[is_dark] = visit.page.evaluate("getComputedStyle(document.querySelector('figure text')).fill")

    assert colours == {False: "rgb(86, 97, 115)", True: "rgb(155, 168, 186)"}
