"""Topics of their own for tests that share a broker."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A destination that no other test uses."""
    return f"/topic/{re.sub(r'[^0-9A-Za-z]+', '-', request.node.name)}"
