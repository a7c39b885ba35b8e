"""Command line options of programs that measure in rounds and write a page with plots."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDS: Final = 3
_QUICK_ROUNDS: Final = 1
_PLOTS: Final = Path("docs/plots")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    rounds: int
    is_quick: bool
    json_file: Path | None
    from_file: Path | None
    page_file: Path
    plots_directory: Path

    def make_directories(self) -> None:
        self.page_file.parent.mkdir(parents=True, exist_ok=True)
        self.plots_directory.mkdir(parents=True, exist_ok=True)

    def as_seen_from_the_page(self, pictures: Sequence[Path]) -> list[str]:
        return [os.path.relpath(picture, self.page_file.parent) for picture in pictures]


def add_page_options(parser: argparse.ArgumentParser, *, page: Path) -> None:
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_at_least_one,
        help=f"interleaved rounds (default {_ROUNDS}, with --quick {_QUICK_ROUNDS})",
    )
    parser.add_argument("--quick", action="store_true", help="less of everything; no measure of anything")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every value to FILE as well")
    parser.add_argument(
        "--from", dest="from_file", metavar="FILE", type=Path, help="measure nothing, show what --json has written"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, default=page, help=f"the page (default {page})")
    parser.add_argument(
        "--plots", metavar="DIRECTORY", type=Path, default=_PLOTS, help=f"its pictures (default {_PLOTS})"
    )


def page_options(parsed: argparse.Namespace) -> PageOptions:
    return PageOptions(
        rounds=parsed.rounds or (_QUICK_ROUNDS if parsed.quick else _ROUNDS),
        is_quick=parsed.quick,
        json_file=parsed.json,
        from_file=parsed.from_file,
        page_file=parsed.out,
        plots_directory=parsed.plots,
    )


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds are too few, 1 is the least")
    return number
