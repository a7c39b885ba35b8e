"""Bridges over HTTP, in metrics, on the command line and on the page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from stompbroker.cli.bridges import description
from stompbroker.config import BridgeSettings
from tests.management.asker import asking
from tests.management.browser import page_address, visiting
from tests.management.test_metrics import scrape, value
from tests.support.bridging import bridge_to, free_ports
from tests.support.broker_process import running_broker as running_process
from tests.support.broker_under_test import running_broker
from tests.support.prepared_process import run_program
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

EVENTS = "/topic/events.>"
NOW = datetime(2030, 1, 1, 1, tzinfo=UTC)
SENDING: dict[str, Any] = {
    "name": "london",
    "direction": "send",
    "state": "retrying",
    "since": "2030-01-01T00:58:00.000+00:00",
    "problem": "No broker listens on london:61613.",
    "backlog": 1200,
    "lag_s": 130.0,
    "kind": "stompbroker",
    "guarantee": "once",
    "urls": ["stomp://london:61613"],
    "patterns": [EVENTS],
    "connections": 2,
    "failures": 4,
    "received": 500,
    "sent": 497,
    "duplicates": 1,
    "circles": 2,
    "refused": 0,
    "in_flight": 0,
}
RECEIVING = SENDING | {
    "direction": "receive",
    "state": "connected",
    "backlog": None,
    "lag_s": None,
    "kind": "rabbitmq",
    "guarantee": "at-least-once",
    "duplicates": 0,
    "circles": 0,
}


def test_the_list_says_in_words_how_each_direction_goes() -> None:
    lines = list(description([SENDING, RECEIVING], NOW, width=None))

    assert lines == [
        "london, send:",
        "  state     retrying since 2030-01-01 00:58:00 (2 min ago)",
        "  problem   No broker listens on london:61613.",
        "  to        stomp://london:61613 (stompbroker, once)",
        f"  patterns  {EVENTS}",
        "  lag       1,200 messages, the oldest 2 min old",
        "  received  500 messages",
        "  sent      497 messages, 1 were there already, 2 had come back in a circle",
        "",
        "london, receive:",
        "  state     connected since 2030-01-01 00:58:00 (2 min ago)",
        "  problem   last: No broker listens on london:61613.",
        "  from      stomp://london:61613 (rabbitmq, at least once)",
        f"  patterns  {EVENTS}",
        "  lag       not known: what waits is at the other broker",
        "  received  500 messages",
        "  sent      497 messages",
    ]


async def test_a_bridge_is_seen_over_http_by_those_who_see_everything(tmp_path: Path) -> None:
    table = BridgeSettings.model_validate(bridge_to(1, name="london", send=[EVENTS]))
    for name, read in (("everything", []), ("some", ["orders.>"])):
        add_user(tmp_path / "users.toml", name, read=read, roles=["viewer"])
    async with running_broker(store_in=tmp_path, bridges=(table,)) as broker:
        async with asking(broker, auth=("everything", PASSWORD)) as ask:
            (shown,) = (await ask.get("/bridges"))["bridges"]
            assert (shown["name"], shown["state"], shown["backlog"]) == ("london", "connecting", 0)
            assert [one["name"] for one in (await ask.get("/overview"))["bridges"]] == ["london"]
            families = await scrape(ask)
            labels = {"bridge": "london", "direction": "send"}
            assert value(families, "stompbroker_bridge_connected", **labels) == 0
            assert value(families, "stompbroker_bridge_sent_total", **labels) == 0
        async with asking(broker, auth=("some", PASSWORD)) as ask:
            assert (await ask.client.get("/api/v1/bridges")).status_code == 403
            assert (await ask.get("/overview"))["bridges"] == []


def test_the_page_and_the_command_say_why_a_bridge_is_not_connected(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    tables = json.dumps([bridge_to(port, name="london", send=[EVENTS])])
    with running_process(tmp_path, bridges=tables) as broker:
        with visiting(browser, page_address(broker)) as visit:
            visit.open()
            panel = visit.page.locator("section", has_text="Bridges")
            expect(panel).to_contain_text("london, send")
            expect(panel).to_contain_text("Not connected")
            expect(panel).to_contain_text(f"127.0.0.1:{port}")
        done = run_program("bridges", "--data", str(broker.data))
        assert "london, send:" in done.stdout
        assert f"No broker listens on 127.0.0.1:{port}." in done.stdout
        assert json.loads(run_program("bridges", "--data", str(broker.data), "--json").stdout)["total"] == 1


def test_without_bridges_the_command_says_how_to_make_one(tmp_path: Path) -> None:
    with running_process(tmp_path) as broker:
        assert "docs/bridges.md" in run_program("bridges", "--data", str(broker.data)).stdout
