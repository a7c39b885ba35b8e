"""`stompbroker dead-letters`: what could not be delivered; look at it, send it again, or delete it.

Law: asks over the control socket and shows the answer. Letters are moved only when a person has said so after seeing
how many, or with --yes; a program that did not say so is refused.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory, read_origin, require_utf8
from stompbroker.cli.terminal import Column, print_uncut, say, say_json, uncut_table
from stompbroker.cli.wording import counted, in_one_piece, labelled, moment, relative
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.table import Table

    from stompbroker.cli.dead_letter_orders import Selection

__all__ = ["letter_lines", "letter_table", "make_dead_letters", "topic_table"]

#: Letters that a list shows unless it is told otherwise.
SHOWN_LETTERS = 100

#: Bytes shown of a body that is not text: 64 lines.
SHOWN_BINARY_BYTES = 1_024
_BYTES_A_LINE = 16

#: What occurs in text. Anything else below a blank is a sign of something else that happens to be UTF-8.
_TEXT_CONTROLS = frozenset("\t\n\f\r\x1b")

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic they died in: orders, /topic/orders or DLQ.orders.")
]
SubscriptionOption = Annotated[
    str | None, typer.Option("--subscription", "-s", metavar="KEY", help="Only those that this subscription left.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those with this text somewhere in their reason.")
]
MessageOption = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="Only those about this message, by its original id.")
]
OffsetOption = Annotated[
    int | None, typer.Option("--offset", metavar="N", min=0, help="Only the one at this offset, as the list has it.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Target(StrEnum):
    SUBSCRIBER = "subscriber"
    TOPIC = "topic"


def make_dead_letters() -> typer.Typer:
    """The command and what is below it."""
    application = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
    application.callback()(_about)
    application.command("list")(_list)
    application.command("show")(_show)
    application.command("redrive")(_redrive)
    application.command("purge")(_purge)
    return application


def _about() -> None:
    """What could not be delivered: look at it, send it again, or delete it.

    A message that a subscription has failed over too often, or refused for good, is kept as a dead letter
    in /topic/DLQ.TOPIC. Others who subscribe to its topic do not notice.

    Examples:

    $ stompbroker dead-letters list
    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50
    $ stompbroker dead-letters purge orders --reason "no such customer"
    """


def _list(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="The topic they died in; without it, the topics that have any."),
    ] = None,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show this many, the oldest first.")] = SHOWN_LETTERS,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters of a topic, or the topics that have any.

    Examples:

    $ stompbroker dead-letters list
    $ stompbroker dead-letters list orders
    $ stompbroker dead-letters list orders --subscription billing/invoices --reason timeout --limit 1000
    $ stompbroker dead-letters list orders --json | jq .letters[].original_message_id
    """
    from stompbroker.cli.control_client import ask_broker
    from stompbroker.cli.outcome import run

    if topic is None:
        given = {"--subscription": subscription, "--reason": reason, "--message-id": message_id, "--offset": offset}
        for option, value in given.items():
            if value is not None:
                raise typer.BadParameter("needs a TOPIC to look in", param_hint=option)
        answer = run(ask_broker, data_directory(data, config), "dead_letter_topics")
        if as_json:
            say_json(answer)
        elif answer["topics"]:
            print_uncut(topic_table(answer["topics"], datetime.now(UTC)))
        else:
            say("There are no dead letters.")
        return
    selection = _selection(topic, subscription, reason, message_id, offset)
    # One more than is shown tells whether there are more.
    letters = run(_first_letters, data_directory(data, config), selection, limit + 1)
    has_more, letters = len(letters) > limit, letters[:limit]
    if as_json:
        say_json({"topic": selection.topic, "letters": letters, "has_more": has_more})
    elif letters:
        print_uncut(letter_table(letters, datetime.now(UTC)))
        if has_more:
            say(f"… and more; --limit shows more than {len(letters):,}.")
    else:
        say(f"There are {selection.of(0)}.")


def _show(
    topic: TopicArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Which one: as in the first column.")],
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="FILE", help="Write the body, byte by byte, to this file; - is stdout."),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: where it comes from, what became of it, its headers and its body.

    With --body the body is written and nothing else is shown.

    Examples:

    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters show orders 17 --body order.xml
    $ stompbroker dead-letters show orders 17 --body - | jq .
    """
    from stompbroker.cli.control_client import ask_broker
    from stompbroker.cli.outcome import run

    if as_json and body is not None:
        raise typer.BadParameter("cannot be combined with --json, which has the body", param_hint="--body")
    origin = read_origin(topic)
    letter = run(partial(ask_broker, data_directory(data, config), "dead_letter", topic=origin, offset=offset))
    content = base64.b64decode(letter["body"])
    if body is not None:
        _write_body(content, body)
    elif as_json:
        say_json(letter)
    else:
        title, *lines = letter_lines(letter, origin, content, datetime.now(UTC))
        say(title, bold=True)
        say(*lines)


def _redrive(
    topic: TopicArgument,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    to: Annotated[
        Target,
        typer.Option(help="subscriber: only to the subscription that failed; topic: to all its topic has by then."),
    ] = Target.SUBSCRIBER,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="At most this many letters a second.", show_default="as fast as possible"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Redrive this many, the oldest first.", show_default="all")
    ] = None,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again as the messages they were, with all attempts before them.

    Each leaves the dead letters as it is sent. What dies meanwhile is left alone.
    Ctrl-C stops it; the exit code is 1 if any could not be redriven.

    Examples:

    $ stompbroker dead-letters redrive orders
    $ stompbroker dead-letters redrive orders --offset 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50 --yes
    $ stompbroker dead-letters redrive orders --to topic --limit 10
    """
    from stompbroker.cli.dead_letter_orders import Move, carry_out

    selection = _selection(topic, subscription, reason, message_id, offset)
    everybody = f"everybody who subscribes to /topic/{visible(selection.topic)}"
    move = Move(
        method="redrive_dead_letters",
        params={"to": to.value},
        rate=rate,
        done="redriven",
        doing="redriving",
        consequence=f"would be sent to {'the subscriptions that failed' if to is Target.SUBSCRIBER else everybody}",
    )
    carry_out(move, selection, data_directory(data, config), limit=limit, is_agreed=yes, as_json=as_json)


def _purge(
    topic: TopicArgument,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Delete this many, the oldest first.", show_default="all")
    ] = None,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good.

    Examples:

    $ stompbroker dead-letters purge orders
    $ stompbroker dead-letters purge orders --reason "no such customer" --yes
    """
    from stompbroker.cli.dead_letter_orders import Move, carry_out

    selection = _selection(topic, subscription, reason, message_id, offset)
    move = Move(method="purge_dead_letters", done="purged", doing="purging", consequence="would be gone for good")
    carry_out(move, selection, data_directory(data, config), limit=limit, is_agreed=yes, as_json=as_json)


def _selection(
    topic: str,
    subscription: str | None = None,
    reason: str | None = None,
    message_id: str | None = None,
    offset: int | None = None,
) -> "Selection":
    from stompbroker.cli.dead_letter_orders import Selection

    for text, parameter in ((subscription, "--subscription"), (reason, "--reason"), (message_id, "--message-id")):
        if text is not None:
            require_utf8(text, parameter)
    return Selection(
        topic=read_origin(topic), subscription=subscription, reason=reason, message_id=message_id, offset=offset
    )


async def _first_letters(directory: Path, selection: "Selection", number: int) -> list[dict[str, Any]]:
    from stompbroker.cli.dead_letter_orders import find_letters

    found: list[dict[str, Any]] = []
    async for page in find_letters(directory, selection):
        found += page
        if len(found) >= number:
            break
    return found[:number]


def _write_body(body: bytes, file: str) -> None:
    from stompbroker.cli.outcome import CommandFailed

    if file == "-":
        typer.get_binary_stream("stdout").write(body)
        return
    try:
        Path(file).write_bytes(body)
    except OSError as error:
        raise CommandFailed(f"The body cannot be written to {file}: {error.strerror}.") from error
    say(f"Wrote the body, {counted(len(body), 'byte')}, to {file}.")


def topic_table(topics: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    from stompbroker.config import bytes_as_text

    columns = {
        Column("topic"): lambda one: visible(one["topic"]),
        Column("letters", is_number=True): lambda one: f"{one['letters']:,}",
        Column("bytes", is_number=True): lambda one: bytes_as_text(one["bytes"]),
        Column("oldest"): lambda one: relative(one["oldest_died_at"], now),
    }
    return uncut_table(columns, topics)


def letter_table(letters: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    from stompbroker.config import bytes_as_text

    columns = {
        Column("offset", is_number=True): lambda one: str(one["offset"]),
        Column("died"): lambda one: relative(one["died_at"], now),
        Column("subscription"): lambda one: one["subscription"],
        Column("attempts", is_number=True): lambda one: f"{one['attempts']:,}",
        Column("cause", folds=True): lambda one: one["cause"],
        Column("reason", folds=True): lambda one: one["reason"],
        Column("message id"): lambda one: one["original_message_id"],
        Column("size", is_number=True): lambda one: bytes_as_text(one["body_bytes"]),
    }
    return uncut_table(columns, letters)


def letter_lines(letter: Mapping[str, Any], topic: str, body: bytes, now: datetime) -> Iterator[str]:
    """Everything about one letter; the first line is its title."""
    yield f"Dead letter {letter['offset']} of {visible(topic)}"
    kind = "durable" if letter["is_durable"] else "not durable"
    own_id = readable(letter["message_id"])
    pairs = {
        "died": moment(letter["died_at"], now),
        "cause": readable(letter["cause"]),
        "reason": readable(letter["reason"]) or "(none was given)",
        "subscription": f"{in_one_piece(letter['subscription'])} ({kind})",
        "attempts": f"{letter['attempts']:,}",
        "first attempt": moment(letter["first_attempt_at"], now),
        "last attempt": moment(letter["last_attempt_at"], now),
        "published": moment(letter["published_at"], now),
        "destination": visible(letter["destination"]),
        "message id": f"{readable(letter['original_message_id'])} (the letter's own is {own_id})",
    }
    yield from labelled([(label, text) for label, text in pairs.items() if text], width=None)
    yield "Headers"
    yield from (f"  {readable(name)}: {readable(value)}" for name, value in letter["headers"])
    yield from _body_lines(body)


def _body_lines(body: bytes) -> Iterator[str]:
    from stompbroker.config import bytes_as_text

    text = _as_text(body)
    if not body:
        yield "No body"
    elif text is not None:
        yield f"Body ({bytes_as_text(len(body))})"
        yield from (f"  {line}" for line in readable(text, keeps_lines=True).removesuffix("\n").split("\n"))
    else:
        yield f"Body ({bytes_as_text(len(body))}, not text)"
        yield from _hexadecimal(body[:SHOWN_BINARY_BYTES])
        if len(body) > SHOWN_BINARY_BYTES:
            yield f"  … and {counted(len(body) - SHOWN_BINARY_BYTES, 'byte')} more"
        yield "  --body FILE writes it to a file."


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(sign < " " and sign not in _TEXT_CONTROLS for sign in text) else text


def _hexadecimal(data: bytes) -> Iterator[str]:
    """As `hexdump -C` has it: where, what, and what of it can be read."""
    for start in range(0, len(data), _BYTES_A_LINE):
        part = data[start : start + _BYTES_A_LINE]
        signs = "".join(chr(code) if 0x20 <= code < 0x7F else "." for code in part)
        yield f"  {start:08x}  {part.hex(' '):{3 * _BYTES_A_LINE - 1}}  {signs}"
