"""Statistics as tables."""

from __future__ import annotations

import copy
import re
from typing import Any

import trio
from rich.console import Console
from rich.text import Text

from stompbroker.cli.stats import MAX_ROWS, ask_for_statistics, overview
from stompbroker.cli.terminal import print_uncut

STORE = {
    "engine": "sqlite",
    "state": "ok",
    "reason": None,
    "since": None,
    "backlog_units": 0,
    "backlog_bytes": 0,
    "batches": 12345,
    "stored_bytes": 3 * 1024**2,
    "damages": 0,
    "check": None,
}

ANSWER: dict[str, Any] = {
    "broker": {
        "version": "0.1.0",
        "started_at": "2030-01-01T00:00:00Z",
        "uptime_s": 3661.2,
        "state": "running",
    },
    "memory": {"used_bytes": 128 * 1024**2, "limit_bytes": 512 * 1024**2},
    "store": STORE,
    "ledger": None,
    "topics_total": 1,
    "subscriptions_total": 1,
    "connections_total": 1,
    "connections": [
        {
            "id": 7,
            "peer": "127.0.0.1:50000",
            "version": "1.2",
            "subscriptions": 1,
            "bytes_in": 2048,
            "bytes_out": 0,
            "connected_at": "2030-01-01T00:00:01Z",
        }
    ],
    "topics": [
        {
            "name": "prices.[red]",
            "kind": "topic",
            "members": None,
            "destination": "/topic/prices.[red]",
            "published": 1000,
            "published_bytes": 5000,
            "subscribers": 3,
            "kept_messages": 17,
            "kept_bytes": 1536,
            "next_offset": 1000,
            "blocked": True,
        }
    ],
    "subscriptions": [
        {
            "id": "t7-1",
            "key": "1",
            "connection": 7,
            "kind": "topic",
            "sharing": "none",
            "browser": False,
            "members": 1,
            "destination": "prices.*",
            "durable": False,
            "ack": "client",
            "prefetch": 1000,
            "in_flight": 12,
            "waiting": 2,
            "backlog": 88,
            "delivered": 900,
            "acked": 880,
            "nacked": 4,
            "redelivered": 6,
            "dropped": 0,
            "late": 0,
        }
    ],
    "totals": {"published": 1000, "delivered": 900, "bytes_in": 2048, "bytes_out": 0, "connections_opened": 1},
}


def printed(first: dict[str, Any], second: dict[str, Any], *, width: int = 80) -> list[list[str]]:
    """The lines on an ordinary terminal, each as its words."""
    console = Console(width=width, no_color=True, force_terminal=True)
    with console.capture() as capture:
        print_uncut(*overview(first, second), console=console)
    return [line.split() for line in re.sub(r"\x1b\[\d*m", "", capture.get()).splitlines()]


def later(**totals: int) -> dict[str, Any]:
    """The same broker two seconds on."""
    answer = copy.deepcopy(ANSWER)
    answer["broker"]["uptime_s"] += 2
    answer["totals"].update(totals)
    return answer


def test_the_whole_broker_is_described() -> None:
    lines = printed(ANSWER, ANSWER)

    text = [" ".join(words) for words in lines]
    assert "stompbroker 0.1.0, running, up 1:01:01 since 2030-01-01 00:00:00" in text
    assert "memory 128 MiB of 512 MiB (25%)" in text
    assert "published 1,000" in text
    assert "prices.[red] 1,000 3 17 1.5 KiB held back" in text
    assert "prices.* 7 client 88 12 2 900 6 0" in text
    assert "127.0.0.1:50000 7 1.2 1 2 KiB 0 B 2030-01-01 00:00:01" in text


def test_a_durable_subscription_has_its_name_and_may_be_without_a_connection() -> None:
    answer = copy.deepcopy(ANSWER)
    answer["subscriptions"][0] |= {"durable": True, "key": "shop/[red]", "connection": None, "members": 0}

    lines = [" ".join(words) for words in printed(answer, answer, width=120)]

    assert "shop/[red] (prices.*) away client 88 12 2 900 6 0" in lines


def test_a_heading_is_not_broken_on_a_narrow_terminal() -> None:
    answer = copy.deepcopy(ANSWER)
    answer["subscriptions"][0] |= {"durable": True, "key": "shop/invoices", "ack": "client-individual"}

    lines = [" ".join(words) for words in printed(answer, answer)]

    assert "subscription conn ack backlog in flight waiting sent again dropped" in lines
    assert "shop/invoices 7 individual 88 12 2 900 6 0" in lines


def test_queues_and_groups_have_members() -> None:
    answer = copy.deepcopy(ANSWER)
    (topic,), (subscription,) = answer["topics"], answer["subscriptions"]
    queue = {"name": "jobs", "kind": "queue", "destination": "/queue/jobs", "members": 12, "blocked": False}
    answer["topics"].append(topic | queue)
    shared = subscription | {"sharing": "shared", "connection": None, "durable": True}
    answer["subscriptions"] += [
        shared | {"key": "/queue/jobs", "kind": "queue", "destination": "/queue/jobs", "members": 12},
        shared | {"key": "group:g @ a", "destination": "/topic/a", "members": 1},
        shared | {"key": "group:h @ a", "destination": "/topic/a", "members": 0, "durable": False},
    ]

    lines = [" ".join(words) for words in printed(answer, answer, width=120)]

    assert "/queue/jobs 1,000 12 17 1.5 KiB" in lines
    assert "/queue/jobs 12 members client 88 12 2 900 6 0" in lines
    assert "group:g @ a (/topic/a) 1 member client 88 12 2 900 6 0" in lines
    assert "group:h @ a (/topic/a) away client 88 12 2 900 6 0" in lines


def store_line(**changes: object) -> str:
    answer = later() | {"store": STORE | changes}
    (line,) = (" ".join(words) for words in printed(answer, answer, width=200) if words[:1] == ["store"])
    return line


def test_a_store_that_is_checked_says_so() -> None:
    assert store_line(check="running") == "store sqlite ok, 12,345 batches, 3 MiB stored, being checked"


def test_a_store_that_is_well_is_one_line() -> None:
    assert store_line() == "store sqlite ok, 12,345 batches, 3 MiB stored"
    assert store_line(engine="memory", stored_bytes=None, batches=0) == "store memory ok, 0 batches"
    assert store_line(backlog_units=20, backlog_bytes=2048).endswith("3 MiB stored, 20 to be written (2 KiB)")


def test_a_store_that_is_not_well_stands_out_and_says_why() -> None:
    since = "2030-01-01T00:00:01.5Z"

    assert store_line(state="failing", reason="disk full", since=since) == (
        "store sqlite FAILING since 2030-01-01 00:00:01 (disk full), 12,345 batches, 3 MiB stored"
    )
    assert store_line(state="low-space").startswith("store sqlite LOW-SPACE, ")
    answer = later() | {"store": STORE | {"state": "failing"}}
    (line,) = (part for part in overview(answer, answer) if str(part).startswith("store"))
    assert isinstance(line, Text)
    assert line.style == "bold red"


LEDGER = {
    "lake": "/data/lake",
    "state": "ok",
    "reason": None,
    "since": None,
    "waiting_records": 0,
    "waiting_bytes": 0,
    "waiting_since": None,
    "last_export_at": None,
    "complete_until": None,
}


def test_the_lake_is_one_line_that_stands_out_when_it_fails() -> None:
    well, failing = (
        later() | {"ledger": LEDGER | changes}
        for changes in (
            {"last_export_at": "2030-01-01T00:00:01.5Z"},
            {
                "state": "failing",
                "reason": "disk full",
                "since": "2030-01-01T00:00:02Z",
                "waiting_records": 1234,
                "waiting_bytes": 2048,
            },
        )
    )

    (line,) = (part for part in overview(well, well) if str(part).startswith("lake"))
    assert (str(line), line.style) == ("lake       ok, last export 2030-01-01 00:00:01", "")  # type: ignore[union-attr]
    (line,) = (part for part in overview(failing, failing) if str(part).startswith("lake"))
    assert (str(line), line.style) == (  # type: ignore[union-attr]
        "lake       FAILING since 2030-01-01 00:00:02 (disk full), no export yet, 1,234 records to be exported (2 KiB)",
        "bold red",
    )
    assert not [words for words in printed(ANSWER, ANSWER) if words[:1] == ["lake"]], "there is no ledger"


def test_rates_are_the_difference_of_two_answers() -> None:
    second = later(published=1500, delivered=2900)
    second["topics"][0]["published"] = 1400

    text = [" ".join(words) for words in printed(ANSWER, second)]

    assert "published 1,500, 250 a second" in text
    assert "delivered 2,900, 1,000 a second" in text
    assert "prices.[red] 1,400 200 3 17 1.5 KiB held back" in text


def test_what_does_not_fit_is_counted() -> None:
    answer = later()
    answer["topics"] = [ANSWER["topics"][0] | {"name": f"t9{number}"} for number in range(MAX_ROWS)]
    answer["topics_total"] = 5000

    text = [" ".join(words) for words in printed(ANSWER, answer)]

    assert [line.split()[0] for line in text if line.startswith("t9")] == [f"t9{n}" for n in range(MAX_ROWS)]
    assert f"… and {5000 - MAX_ROWS:,} more topics; --json tells of up to 1,000" in text


def test_nothing_is_said_to_be_nothing() -> None:
    answer = later() | {"topics": [], "subscriptions": [], "connections": []}

    text = [" ".join(words) for words in printed(answer, answer)]

    assert {"no topics", "no subscriptions", "no connections"} <= set(text)


class ScriptedBroker:
    """Answers `overview` with nothing, and lists as `Control` promises to."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {"topics": [], "subscriptions": [], "connections": []} | lists
        self.asked: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.asked.append(method)
        if method == "overview":
            return {}
        assert params["sort"].startswith("-")
        found = sorted(self.lists[method], key=lambda one: -one[params["sort"][1:]])
        return {"total": len(found), method: found[: params["limit"]]}


def test_the_busiest_are_those_that_are_furthest_behind_and_then_those_that_got_most() -> None:
    behind = [{"id": f"behind {n}", "backlog": n, "delivered": 0} for n in (1, 2)]
    idle = [{"id": f"idle {n}", "backlog": 0, "delivered": n} for n in range(9)]
    broker: Any = ScriptedBroker(subscriptions=[*idle, *behind])

    answer = trio.run(ask_for_statistics, broker, 5)

    assert [one["id"] for one in answer["subscriptions"]] == ["behind 2", "behind 1", "idle 8", "idle 7", "idle 6"]
    assert answer["subscriptions_total"] == 11


def test_each_list_is_asked_for_once_where_all_of_it_is_told() -> None:
    broker: Any = ScriptedBroker(connections=[{"id": n, "bytes_in": n, "bytes_out": -n} for n in range(3)])

    answer = trio.run(ask_for_statistics, broker, 3)

    assert broker.asked == ["overview", "topics", "subscriptions", "connections"]
    assert len(answer["connections"]) == 3
