"""One screen of `stompbroker top`.

Law: pure; from the broker's answers to something Rich can print.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from stompbroker.cli.instants import duration
from stompbroker.cli.terminal import shown
from stompbroker.config import bytes_as_text
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

__all__ = ["screen_of"]


def screen_of(answers: Mapping[str, Any]) -> RenderableType:
    return Group(
        *_head(answers["overview"]),
        _topics(answers["topics"]),
        shown(""),
        _subscriptions(answers["subscriptions"]),
    )


def _head(overview: Mapping[str, Any]) -> list[RenderableType]:
    broker, rates, now, memory = overview["broker"], overview["rates"], overview["now"], overview["memory"]
    uptime = timedelta(seconds=round(broker["uptime_s"]))
    share, lag_ms = memory["used_bytes"] / memory["limit_bytes"], overview["event_loop"]["lag_ms"]
    lines = [
        shown(f"stompbroker {broker['version']}, {broker['state']}, up {uptime}", "bold"),
        shown(
            f"published {_rate(rates, 'published')}/s   delivered {_rate(rates, 'delivered')}/s   "
            f"acked {_rate(rates, 'acked')}/s   in {bytes_as_text(int(rates.get('bytes_in', 0)))}/s   "
            f"out {bytes_as_text(int(rates.get('bytes_out', 0)))}/s"
        ),
        shown(
            f"connections {now['connections']:,}   topics {now['topics']:,}   subscriptions {now['subscriptions']:,}   "
            f"in flight {now['in_flight']:,}   waiting {now['waiting']:,}   backlog {now['backlog']:,}   "
            f"dead letters {now['dead_letters']:,}"
        ),
        shown(f"memory {bytes_as_text(memory['used_bytes'])} ({share:.0%})   loop lag {lag_ms:.1f} ms"),
    ]
    store = overview["store"]
    if store["state"] != "ok":
        lines.append(shown(f"store {store['state'].upper()}: {store['reason']}", "bold red"))
    ledger = overview.get("ledger")
    if ledger and ledger["state"] != "ok":
        lines.append(shown(f"lake {ledger['state'].upper()}: {ledger['reason']}", "bold red"))
    if now["blocked_topics"]:
        lines.append(shown(f"publishers of {now['blocked_topics']} topics are held back", "bold yellow"))
    return [*lines, shown("")]


def _rate(rates: Mapping[str, float], name: str) -> str:
    return f"{rates.get(name, 0):,.0f}"


def _topics(answer: Mapping[str, Any]) -> Table:
    return _table(
        answer["topics"],
        {
            "topic": lambda one: visible(one["name"]),
            "msg/s": lambda one: f"{one['rate']:,.0f}",
            "published": lambda one: f"{one['published']:,}",
            "pubs": lambda one: f"{one['publishers']:,}",
            "subs": lambda one: f"{one['subscribers']:,}",
            "kept": lambda one: f"{one['kept_messages']:,}",
            "stored": lambda one: f"{one['stored_messages']:,}",
            "": lambda one: "held back" if one["blocked"] else "",
        },
    )


def _subscriptions(answer: Mapping[str, Any]) -> Table:
    return _table(
        answer["subscriptions"],
        {
            "subscription": lambda one: f"{readable(one['key'])} → {visible(one['destination'])}",
            "msg/s": lambda one: f"{one['rate']:,.0f}",
            "backlog": lambda one: f"{one['backlog']:,}",
            "lag": lambda one: "" if one["lag_s"] is None else duration(one["lag_s"]),
            "in flight": lambda one: f"{one['in_flight']:,}",
            "waiting": lambda one: f"{one['waiting']:,}",
            "again": lambda one: f"{one['redelivered']:,}",
            "dead": lambda one: f"{one['dead']:,}",
            "": _state,
        },
    )


def _state(one: Mapping[str, Any]) -> str:
    if one["paused"]:
        return "paused"
    return "" if one["connected"] else "away"


def _table(entries: Sequence[Mapping[str, Any]], columns: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True, overflow="ellipsis")
    for entry in entries:
        table.add_row(*(shown(cell(entry)) for cell in columns.values()))
    return table
