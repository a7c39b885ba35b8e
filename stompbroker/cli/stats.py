"""`stompbroker stats` and `stompbroker top`: what a running broker is doing, once or live in the terminal.

Every number is the broker's answer, except the rates of `stats`: they are the difference of two answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.outcome import run
from stompbroker.cli.terminal import counts, open_console, print_uncut, say_json, shown, table_of
from stompbroker.cli.wording import counted, duration, size, to_the_second
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from stompbroker.cli.control_client import ControlClient
    from stompbroker.cli.terminal import Columns

#: Entries of each kind with --json: the most the broker gives in one answer.
MAX_ENTRIES = 1_000
#: Rows of each table of `stats`; it counts what it leaves out.
MAX_ROWS = 20


def stats(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Measure rates over this time; 0 shows none.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show topics, queues, subscriptions, connections and rates of the broker that runs on this machine.

    Queues are among the topics, as /queue/NAME; their subs are their consumers.

    Examples:

    $ stompbroker stats
    $ stompbroker stats --data /var/lib/stompbroker
    $ stompbroker stats --json | jq .totals
    """
    directory = data_directory(data, config)
    if as_json:
        (answer,) = run(_ask, directory, MAX_ENTRIES, None)
        say_json(answer)
        return
    answers = run(_ask, directory, MAX_ROWS, interval or None)
    print_uncut(*overview(answers[0], answers[-1]))


async def _ask(directory: Path, limit: int, interval_s: float | None) -> list[dict[str, Any]]:
    """Two answers, an interval apart, or one without an interval."""
    import trio

    from stompbroker.cli.control_client import connect

    async with connect(directory) as control:
        answers = [await ask_for_statistics(control, limit)]
        if interval_s is not None:
            await trio.sleep(interval_s)
            answers.append(await ask_for_statistics(control, limit))
        return answers


async def ask_for_statistics(control: "ControlClient", limit: int) -> dict[str, Any]:
    """The overview, with exact sums, and the busiest topics, subscriptions and connections: at most `limit` of each."""
    answer: dict[str, Any] = await control.call("overview", exact=True)
    for kind, (sorts, busy) in _BUSIEST.items():
        found: dict[object, Any] = {}
        for sort in sorts:
            page = await control.call(kind, sort=sort, limit=limit)
            found |= {one["destination" if kind == "topics" else "id"]: one for one in page[kind]}
            answer[f"{kind}_total"] = page["total"]
            if page["total"] <= limit:
                break
        answer[kind] = sorted(found.values(), key=busy, reverse=True)[:limit]
    return answer


#: How the busiest are found: the broker's sort orders to ask for, and the key by which the answers are merged.
_BUSIEST: Any = {
    "topics": (("-published",), lambda one: one["published"]),
    "subscriptions": (("-backlog", "-delivered"), lambda one: (one["backlog"], one["delivered"])),
    "connections": (("-bytes_out", "-bytes_in"), lambda one: one["bytes_in"] + one["bytes_out"]),
}


def overview(first: Mapping[str, Any], second: Mapping[str, Any]) -> "Iterator[RenderableType]":
    """All parts from top to bottom. There are rates only if the answers differ."""
    interval_s = second["broker"]["uptime_s"] - first["broker"]["uptime_s"]
    broker, totals, memory = second["broker"], second["totals"], second["memory"]
    yield shown(f"{_greeting(broker)} since {to_the_second(broker['started_at'])}", "bold")
    used, limit = memory["used_bytes"], memory["limit_bytes"]
    yield shown(f"memory     {size(used)} of {size(limit)} ({used / limit:.0%})")
    for name in ("published", "delivered"):
        rate = _growth(first["totals"][name], totals[name], interval_s)
        yield shown(f"{name:10} {totals[name]:,}" + (f", {rate} a second" if rate else ""))
    yield shown(f"traffic    {size(totals['bytes_in'])} in, {size(totals['bytes_out'])} out")
    yield _store(second["store"])
    if second["ledger"]:
        yield _lake(second["ledger"])
    published_before: dict[str, int] = {topic["destination"]: topic["published"] for topic in first["topics"]}
    topics: Columns = {
        "topic": _name,
        "published": lambda one: f"{one['published']:,}",
        # A topic that was not there before has no rate yet.
        "a second": lambda one: _growth(
            published_before.get(one["destination"], int(one["published"])), one["published"], interval_s
        ),
        "subs": _readers,
        "kept": lambda one: f"{one['kept_messages']:,}",
        "bytes": lambda one: size(one["kept_bytes"]),
        "publishers": lambda one: "held back" if one["blocked"] else "",
    }
    for kind, columns in (("topics", topics), ("subscriptions", _SUBSCRIPTIONS), ("connections", _CONNECTIONS)):
        yield from _part(kind, columns, second)


def _name(topic: Mapping[str, Any]) -> str:
    """A queue has its prefix."""
    return visible(topic["name"] if topic["kind"] == "topic" else topic["destination"])


def _readers(topic: Mapping[str, Any]) -> str:
    """Subscriptions; of a queue its consumers, which share one."""
    return f"{topic['subscribers'] if topic['members'] is None else topic['members']:,}"


def _subscription(one: Mapping[str, Any]) -> str:
    """Its name, if it has one that says more than the destination."""
    destination = visible(one["destination"])
    if one["browser"]:
        return f"{destination} (browser)"
    has_name = one["durable"] or one["sharing"] != "none"
    return f"{one['key']} ({destination})" if has_name and one["kind"] != "queue" else destination


def _connection(one: Mapping[str, Any]) -> str:
    if not one["members"]:
        return "away"
    return str(one["connection"]) if one["sharing"] == "none" else counted(one["members"], "member")


_SUBSCRIPTIONS: "Columns" = {
    "subscription": _subscription,
    "conn": _connection,
    "ack": lambda one: str(one["ack"]).removeprefix("client-"),
    **counts("backlog", "in_flight", "waiting", sent="delivered", again="redelivered", dropped="dropped"),
}

_CONNECTIONS: "Columns" = {
    "peer": lambda one: str(one["peer"]),
    "conn": lambda one: str(one["id"]),
    "STOMP": lambda one: str(one["version"] or ""),
    "subs": lambda one: f"{one['subscriptions']:,}",
    "in": lambda one: size(one["bytes_in"]),
    "out": lambda one: size(one["bytes_out"]),
    "since": lambda one: to_the_second(one["connected_at"]),
}


def _greeting(broker: Mapping[str, Any]) -> str:
    uptime = timedelta(seconds=round(broker["uptime_s"]))
    return f"stompbroker {broker['version']}, {broker['state']}, up {uptime}"


def _store(store: Mapping[str, Any]) -> "Text":
    """One line; a store that is not well stands out with and without colours."""
    is_well = store["state"] == "ok"
    state = "ok" if is_well else store["state"].upper()
    if not is_well and store["since"]:
        state += f" since {to_the_second(store['since'])}"
    if store["reason"]:
        state += f" ({store['reason']})"
    parts = [f"{store['engine']} {state}", f"{store['batches']:,} batches"]
    if store["stored_bytes"] is not None:
        parts.append(f"{size(store['stored_bytes'])} stored")
    if store["check"] == "running":
        parts.append("being checked")
    if store["backlog_units"]:
        parts.append(f"{store['backlog_units']:,} to be written ({size(store['backlog_bytes'])})")
    return shown(f"store      {', '.join(parts)}", "" if is_well else "bold red")


def _lake(ledger: Mapping[str, Any]) -> "Text":
    is_well = ledger["state"] == "ok"
    state = "ok" if is_well else f"FAILING since {to_the_second(ledger['since'])} ({ledger['reason']})"
    last = ledger["last_export_at"]
    parts = [state, "no export yet" if last is None else f"last export {to_the_second(last)}"]
    if ledger["waiting_records"]:
        records = counted(ledger["waiting_records"], "record")
        parts.append(f"{records} to be exported ({size(ledger['waiting_bytes'])})")
    return shown(f"lake       {', '.join(parts)}", "" if is_well else "bold red")


def _growth(before: int, after: int, interval_s: float) -> str:
    """Messages a second, as text; empty if there is no interval to measure over."""
    return f"{(after - before) / interval_s:,.0f}" if interval_s else ""


def _part(kind: str, columns: "Columns", answer: Mapping[str, Any]) -> "Iterator[RenderableType]":
    yield shown("")
    if not answer[kind]:
        yield shown(f"no {kind}")
        return
    yield _table(answer[kind][:MAX_ROWS], columns)
    if answer[f"{kind}_total"] > MAX_ROWS:
        yield shown(f"… and {answer[f'{kind}_total'] - MAX_ROWS:,} more {kind}; --json tells of up to 1,000", "dim")


def _table(entries: Sequence[Mapping[str, Any]], columns: "Columns", *, is_cut: bool = False) -> "Table":
    """The first column is a name: in `stats` it folds, in `top` it is cut."""
    name, *numbers = columns
    return table_of(entries, columns, right=numbers, folds=() if is_cut else (name,), is_cut=is_cut)


# top -----------------------------------------------------------------------------------------------------------------


def top(
    data: DataOption = None,
    config: ConfigOption = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, metavar="SECONDS", help="Time between two updates.")
    ] = 1.0,
    rows: Annotated[int, typer.Option(min=1, max=100, help="Rows of each table.")] = 12,
    sort: Annotated[
        str,
        typer.Option(
            help="Sort subscriptions by backlog, in_flight, waiting, delivered, rate, redelivered, dead or key."
        ),
    ] = "backlog",
    once: Annotated[bool, typer.Option("--once", help="Show it once and end, for a script or a log.")] = False,
) -> None:
    """Watch rates, topics, queues and subscriptions of the broker that runs on this machine, until Ctrl-C.

    Examples:

    $ stompbroker top
    $ stompbroker top --sort waiting --rows 30
    $ stompbroker top --once
    """
    run(_watch, data_directory(data, config), interval, rows, sort if sort == "key" else f"-{sort}", once)


async def _watch(directory: Path, interval_s: float, rows: int, sort: str, is_once: bool) -> None:
    import trio
    from rich.live import Live

    from stompbroker.cli.control_client import ControlClient, connect

    async def look(control: ControlClient) -> dict[str, Any]:
        topics = await control.call("topics", sort="-rate", limit=rows)
        subscriptions = await control.call("subscriptions", sort=sort, limit=rows)
        return {**await control.call("overview"), **topics, **subscriptions}

    console = open_console()
    async with connect(directory) as control:
        if is_once or not console.is_terminal:
            console.print(_screen(await look(control)))
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(await look(control)), refresh=True)
                await trio.sleep(interval_s)


def _screen(answer: Mapping[str, Any]) -> "RenderableType":
    from rich.console import Group

    topics = _table(answer["topics"], _LIVE_TOPICS, is_cut=True)
    subscriptions = _table(answer["subscriptions"], _LIVE_SUBSCRIPTIONS, is_cut=True)
    return Group(*_head(answer), shown(""), topics, shown(""), subscriptions)


def _head(answer: Mapping[str, Any]) -> "Iterator[RenderableType]":
    rates, now, memory, store, ledger = (answer[name] for name in ("rates", "now", "memory", "store", "ledger"))
    share, lag_ms = memory["used_bytes"] / memory["limit_bytes"], answer["event_loop"]["lag_ms"]
    yield shown(_greeting(answer["broker"]), "bold")
    yield shown(
        f"published {rates.get('published', 0):,.0f}/s   delivered {rates.get('delivered', 0):,.0f}/s   "
        f"acked {rates.get('acked', 0):,.0f}/s   in {size(int(rates.get('bytes_in', 0)))}/s   "
        f"out {size(int(rates.get('bytes_out', 0)))}/s"
    )
    yield shown(
        f"connections {now['connections']:,}   topics {now['topics'] - now['queues']:,}   queues {now['queues']:,}   "
        f"subscriptions {now['subscriptions']:,}   "
        f"in flight {now['in_flight']:,}   waiting {now['waiting']:,}   backlog {now['backlog']:,}   "
        f"dead letters {now['dead_letters']:,}"
    )
    yield shown(f"memory {size(memory['used_bytes'])} ({share:.0%})   loop lag {lag_ms:.1f} ms")
    if store["state"] != "ok":
        yield shown(f"store {store['state'].upper()}: {store['reason']}", "bold red")
    if ledger and ledger["state"] != "ok":
        yield shown(f"lake {ledger['state'].upper()}: {ledger['reason']}", "bold red")
    if now["blocked_topics"]:
        yield shown(f"publishers of {now['blocked_topics']} topics are held back", "bold yellow")


_LIVE_TOPICS: "Columns" = {
    "topic": _name,
    "msg/s": lambda one: f"{one['rate']:,.0f}",
    **counts("published", pubs="publishers"),
    "subs": _readers,
    **counts(kept="kept_messages", stored="stored_messages"),
    "": lambda one: "held back" if one["blocked"] else "",
}


def _attached(one: Mapping[str, Any]) -> str:
    if not one["members"]:
        return "away"
    return "" if one["sharing"] == "none" else counted(one["members"], "member")


_LIVE_SUBSCRIPTIONS: "Columns" = {
    "subscription": lambda one: (
        visible(one["destination"])
        if one["kind"] == "queue"
        else f"{readable(one['key'])} → {visible(one['destination'])}"
    ),
    "msg/s": lambda one: f"{one['rate']:,.0f}",
    "backlog": lambda one: f"{one['backlog']:,}",
    "lag": lambda one: "" if one["lag_s"] is None else duration(one["lag_s"]),
    **counts("in_flight", "waiting", again="redelivered", dead="dead"),
    "": lambda one: "paused" if one["paused"] else _attached(one),
}
