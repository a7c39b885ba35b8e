"""The audit log: always the same fields, and bounded where strangers cause it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from stompbroker.access import Audit
from stompbroker.log_throttle import MAX_KINDS, LogThrottle

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_every_line_says_who_from_where_through_what_and_what(mock_clock: MockClock) -> None:
    audit = Audit(LogThrottle())

    with capture_logs() as lines:
        audit.logged_in("alice", "192.0.2.1", "stomp://127.0.0.1:61613", "password")
        audit.refused("eve", "192.0.2.2", "stomp://127.0.0.1:61613", "unknown user")
        audit.denied("alice", "192.0.2.1", "stomp://127.0.0.1:61613", "write orders")
        audit.acted("alice", "192.0.2.1", "http://127.0.0.1:8613", "purge orders")

    assert [line["event"] for line in lines] == ["login", "login refused", "denied", "operator action"]
    assert all(line.keys() == {"event", "log_level", "user", "address", "endpoint", "what"} for line in lines)


async def test_a_flood_of_refusals_does_not_fill_the_disk_but_operators_are_always_seen(mock_clock: MockClock) -> None:
    audit = Audit(LogThrottle())

    with capture_logs() as lines:
        for number in range(5_000):
            audit.refused("x" * 5_000, f"address {number % 1_000}", "e", "y" * 5_000)
            audit.denied("alice", "a", "e", f"write topic {number}")
        for _ in range(10):
            audit.acted("bob", "a", "e", "purge orders")

    assert sum(line["event"] == "operator action" for line in lines) == 10
    assert len(lines) <= MAX_KINDS + 2 + 10
    assert all(len(str(line)) < 1_000 for line in lines)
