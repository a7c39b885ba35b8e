"""Every test of conformance is run over everything that STOMP can be carried over."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import BrokerUnderTest
from tests.support.carriers import over_tls, over_unix_socket, over_websocket, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.certificates import Certificates


@pytest.fixture(autouse=True, params=["plain", "unix socket", "tls", "websocket text", "websocket binary"])
def carrier(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> Iterator[None]:
    with ExitStack() as resources:
        carriers = {
            "plain": plain,
            "unix socket": over_unix_socket(resources),
            "tls": over_tls(certificates),
            "websocket text": over_websocket(prefers_text=True),
            "websocket binary": over_websocket(prefers_text=False),
        }
        monkeypatch.setattr(BrokerUnderTest, "carrier", staticmethod(carriers[request.param]))
        yield
