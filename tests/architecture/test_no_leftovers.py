"""Nothing of a merge is left in what people read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
#: At the top, and whatever has a title.
READ: Final = sorted({*ROOT.glob("*.*"), *ROOT.glob("[!.]*/*.md")})
#: A line of equal signs alone is a heading in some texts.
MARKER: Final = re.compile(r"^(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|) ", re.MULTILINE)


@pytest.mark.parametrize("name", [str(file.relative_to(ROOT)) for file in READ if file.is_file()])
def test_no_conflict_is_left(name: str) -> None:
    assert not MARKER.search((ROOT / name).read_text())
