"""Every item of the checklist has a test.

Law: reads the names of the tests beside it, and nothing else. Item 55, WebSocket, has its tests with the transport.
"""

from __future__ import annotations

import re
from pathlib import Path

ITEMS = range(1, 55)


def test_every_item_of_the_checklist_has_a_test() -> None:
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_conformance_*.py")]
    names = re.findall(r"^(?:async )?def test_item_(\d\d)_\w+\(", "\n".join(texts), re.MULTILINE)

    missing = set(ITEMS) - {int(number) for number in names}

    assert not missing, f"no test is named after these items: {sorted(missing)}"
    assert {int(number) for number in names} <= set(ITEMS)
