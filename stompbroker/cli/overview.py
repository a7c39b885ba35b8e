"""The statistics of a broker as tables for a person.

Law: pure; from two answers of the broker to things Rich can print. The busiest entries come first, and what does
not fit is counted, never silently left out.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table

from stompbroker.cli.readable_text import counted
from stompbroker.cli.terminal import shown
from stompbroker.config import bytes_as_text
from stompbroker.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["overview"]

#: Rows of each table: what a person looks at. `--json` has everything the broker tells.
MAX_ROWS = 20


def overview(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[RenderableType]:
    """All parts from top to bottom. If both are the same answer, there are no rates."""
    interval_s = second["broker"]["uptime_s"] - first["broker"]["uptime_s"]
    broker, totals = second["broker"], second["totals"]
    uptime = timedelta(seconds=round(broker["uptime_s"]))
    started_at = _to_the_second(broker["started_at"])
    yield shown(f"stompbroker {broker['version']}, {broker['state']}, up {uptime} since {started_at}", "bold")
    used, limit = broker["memory_used_bytes"], broker["memory_limit_bytes"]
    yield shown(f"memory     {bytes_as_text(used)} of {bytes_as_text(limit)} ({used / limit:.0%})")
    for name in ("published", "delivered"):
        rate = _rate(first["totals"][name], totals[name], interval_s)
        yield shown(f"{name:10} {totals[name]:,}" + (f", {rate} a second" if rate else ""))
    yield shown(f"traffic    {bytes_as_text(totals['bytes_in'])} in, {bytes_as_text(totals['bytes_out'])} out")
    if "store" in second:
        yield _store(second["store"])
    if second.get("ledger"):
        yield _lake(second["ledger"])
    yield from _topics(first, second, interval_s)
    yield from _subscriptions(second)
    yield from _connections(second)


def _store(store: Mapping[str, Any]) -> Text:
    """One line; a store that is not well stands out with and without colours."""
    is_well = store["state"] == "ok"
    state = "ok" if is_well else store["state"].upper()
    if not is_well and store["since"]:
        state += f" since {_to_the_second(store['since'])}"
    if store["reason"]:
        state += f" ({store['reason']})"
    parts = [f"{store['engine']} {state}", f"{store['batches']:,} batches"]
    if store["stored_bytes"] is not None:
        parts.append(f"{bytes_as_text(store['stored_bytes'])} stored")
    if store["check"] == "running":
        parts.append("being checked")
    if store["backlog_units"]:
        parts.append(f"{store['backlog_units']:,} to be written ({bytes_as_text(store['backlog_bytes'])})")
    return shown(f"store      {', '.join(parts)}", "" if is_well else "bold red")


def _lake(ledger: Mapping[str, Any]) -> Text:
    is_well = ledger["state"] == "ok"
    state = "ok" if is_well else f"FAILING since {_to_the_second(ledger['since'])} ({ledger['reason']})"
    last = ledger["last_export_at"]
    parts = [state, "no export yet" if last is None else f"last export {_to_the_second(last)}"]
    if ledger["waiting_records"]:
        records = counted(ledger["waiting_records"], "record")
        parts.append(f"{records} to be exported ({bytes_as_text(ledger['waiting_bytes'])})")
    return shown(f"lake       {', '.join(parts)}", "" if is_well else "bold red")


def _rate(before: int, after: int, interval_s: float) -> str:
    """Messages a second, as text; empty if there is no interval to measure over."""
    return f"{(after - before) / interval_s:,.0f}" if interval_s else ""


def _topics(first: Mapping[str, Any], second: Mapping[str, Any], interval_s: float) -> Iterator[RenderableType]:
    published_before = {topic["name"]: topic["published"] for topic in first["topics"]}
    columns = ("topic", "published", "a second", "subs", "kept", "bytes", "publishers")
    rows = [
        (
            visible(topic["name"]),
            f"{topic['published']:,}",
            # A topic that was not there before has no rate yet.
            _rate(published_before.get(topic["name"], topic["published"]), topic["published"], interval_s),
            str(topic["subscribers"]),
            f"{topic['kept_messages']:,}",
            bytes_as_text(topic["kept_bytes"]),
            "held back" if topic["blocked"] else "",
        )
        for topic in sorted(second["topics"], key=lambda topic: -topic["published"])
    ]
    yield from _table("topics", columns, rows, second.get("topics_total", len(rows)))


def _subscriptions(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    columns = ("subscription", "conn", "ack", "backlog", "in flight", "waiting", "sent", "again", "dropped")
    keys = ("backlog", "in_flight", "waiting", "delivered", "redelivered", "dropped")
    rows = [
        (
            destination if one["durable"] is None else f"{one['durable']} ({destination})",
            "away" if one["connection"] is None else str(one["connection"]),
            one["ack"].removeprefix("client-"),
            *(f"{one[key]:,}" for key in keys),
        )
        for one in sorted(answer["subscriptions"], key=lambda one: (-one["backlog"], -one["delivered"]))
        for destination in [visible(one["destination"])]
    ]
    yield from _table("subscriptions", columns, rows, answer.get("subscriptions_total", len(rows)))


def _connections(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    columns = ("peer", "conn", "STOMP", "subs", "in", "out", "since")
    rows = [
        (
            str(one["peer"]),
            str(one["id"]),
            str(one["version"] or ""),
            f"{one['subscriptions']:,}",
            bytes_as_text(one["bytes_in"]),
            bytes_as_text(one["bytes_out"]),
            _to_the_second(one["connected_at"]),
        )
        for one in sorted(answer["connections"], key=lambda one: -(one["bytes_in"] + one["bytes_out"]))
    ]
    yield from _table("connections", columns, rows, answer.get("connections_total", len(rows)))


def _to_the_second(instant: str) -> str:
    """An ISO instant in UTC, without what nobody reads."""
    return datetime.fromisoformat(instant).strftime("%Y-%m-%d %H:%M:%S")


def _table(what: str, columns: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> Iterator[RenderableType]:
    if not rows:
        yield shown("")
        yield shown(f"no {what}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", title=None)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold", no_wrap=number > 0)
    for row in rows[:MAX_ROWS]:
        table.add_row(*(shown(cell) for cell in row))
    yield shown("")
    yield table
    if total > MAX_ROWS:
        yield shown(f"… and {total - MAX_ROWS:,} more {what}; --json tells of up to 1,000", "dim")
