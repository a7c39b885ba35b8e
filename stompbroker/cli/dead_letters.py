"""`stompbroker dead-letters`: what could not be delivered; look at it, send it again, or delete it.

Law: letters are moved only with --yes, or after a person has seen how many and agreed.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stompbroker.cli.message_content import BodyOption, content_lines, write_body
from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory, read_origin, require_utf8
from stompbroker.cli.outcome import ask_broker, run
from stompbroker.cli.terminal import print_uncut, say, say_json, table_of
from stompbroker.cli.wording import in_one_piece, labelled, moment, relative, size
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.table import Table

    from stompbroker.cli.dead_letter_orders import Selection

TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Where they come from: orders, /topic/orders or DLQ.orders; /queue/jobs."),
]
SubscriptionOption = Annotated[
    str | None, typer.Option("--subscription", "-s", metavar="KEY", help="Only those that this subscription failed on.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those with this text somewhere in their reason.")
]
MessageOption = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="Only those about this message, by its original id.")
]
OffsetOption = Annotated[
    int | None, typer.Option("--offset", metavar="N", min=0, help="Only the one at this offset, as in the list.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


commands = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@commands.callback()
def _about() -> None:
    """What could not be delivered: look at it, send it again, or delete it.

    A message that a subscription has failed on too often, or refused for good, is kept as a dead letter
    in /topic/DLQ.TOPIC. Other subscribers of its topic do not notice. Those of a queue are in /queue/DLQ.QUEUE.

    Examples:

    $ stompbroker dead-letters list
    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50
    $ stompbroker dead-letters purge orders --reason "no such customer"
    """


@commands.command("list")
def _list(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="The topic they come from; without it, the topics that have any."),
    ] = None,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show this many, the oldest first.")] = 100,
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
    directory = data_directory(data, config)
    if topic is None:
        given = {"--subscription": subscription, "--reason": reason, "--message-id": message_id, "--offset": offset}
        for option, value in given.items():
            if value is not None:
                raise typer.BadParameter("needs a TOPIC to look in", param_hint=option)
        _list_topics(ask_broker(directory, "dead_letter_topics"), as_json)
        return
    selection = _selection(topic, subscription, reason, message_id, offset)
    # One more than is shown tells whether there are more.
    letters = run(_first_letters, directory, selection, limit + 1)
    has_more, letters = len(letters) > limit, letters[:limit]
    if as_json:
        say_json({"topic": selection.topic, "letters": letters, "has_more": has_more})
    elif letters:
        print_uncut(letter_table(letters, datetime.now(UTC)))
        if has_more:
            say(f"… and more; --limit shows more than {len(letters):,}.")
    else:
        say(f"There are {selection.of(0)}.")


@commands.command("show")
def _show(
    topic: TopicArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Its offset, as in the list.")],
    body: BodyOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: where it comes from, why it was given up, its headers and its body.

    With --body the body is written and nothing else is shown.

    Examples:

    $ stompbroker dead-letters show orders 17
    $ stompbroker dead-letters show orders 17 --body order.xml
    $ stompbroker dead-letters show orders 17 --body - | jq .
    """
    if as_json and body is not None:
        raise typer.BadParameter("cannot be combined with --json, which has the body", param_hint="--body")
    origin = read_origin(topic)
    letter = ask_broker(data_directory(data, config), "dead_letter", topic=origin, offset=offset)
    content = base64.b64decode(letter["body"])
    if body is not None:
        write_body(content, body)
    elif as_json:
        say_json(letter)
    else:
        title, *lines = letter_lines(letter, origin, content, datetime.now(UTC))
        say(title, bold=True)
        say(*lines)


@commands.command("redrive")
def _redrive(
    topic: TopicArgument,
    subscription: SubscriptionOption = None,
    reason: ReasonOption = None,
    message_id: MessageOption = None,
    offset: OffsetOption = None,
    to: Annotated[
        Literal["subscriber", "topic"],
        typer.Option(
            help="subscriber: only to the subscription that failed; topic: to all subscribers of its topic. "
            "Those of a queue go to the queue."
        ),
    ] = "subscriber",
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
    """Send dead letters again as the messages they were, with all their attempts before them.

    Each is removed from the dead letters as it is sent. Letters that arrive meanwhile are left alone.
    Ctrl-C stops it; the exit code is 1 if any could not be redriven.

    Examples:

    $ stompbroker dead-letters redrive orders
    $ stompbroker dead-letters redrive orders --offset 17
    $ stompbroker dead-letters redrive orders --subscription billing/invoices --rate 50 --yes
    $ stompbroker dead-letters redrive orders --to topic --limit 10
    $ stompbroker dead-letters redrive /queue/jobs
    """
    from stompbroker.cli.dead_letter_orders import Move, carry_out

    selection = _selection(topic, subscription, reason, message_id, offset)
    if selection.topic.startswith("/"):
        whom = visible(selection.topic)
    elif to == "subscriber":
        whom = "the subscriptions that failed"
    else:
        whom = f"everybody who subscribes to /topic/{visible(selection.topic)}"
    move = Move(
        method="redrive_dead_letters",
        params={"to": to},
        rate=rate,
        done="redriven",
        doing="redriving",
        consequence=f"would be sent to {whom}",
    )
    carry_out(move, selection, data_directory(data, config), limit=limit, is_agreed=yes, as_json=as_json)


@commands.command("purge")
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
    topic: str, subscription: str | None, reason: str | None, message_id: str | None, offset: int | None
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

    return [letter async for page in find_letters(directory, selection, number) for letter in page]


def _list_topics(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(answer)
        return
    if not answer["topics"]:
        say("There are no dead letters.")
        return
    now = datetime.now(UTC)
    table = table_of(
        answer["topics"],
        {
            "topic": lambda one: visible(one["topic"]),
            "letters": lambda one: f"{one['letters']:,}",
            "bytes": lambda one: size(one["bytes"]),
            "oldest": lambda one: relative(one["oldest_died_at"], now),
        },
        right=("letters", "bytes"),
    )
    print_uncut(table)


def letter_table(letters: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    return table_of(
        letters,
        {
            "offset": lambda one: str(one["offset"]),
            "died": lambda one: relative(one["died_at"], now),
            "subscription": lambda one: one["subscription"],
            "attempts": lambda one: f"{one['attempts']:,}",
            "cause": lambda one: one["cause"],
            "reason": lambda one: one["reason"],
            "message id": lambda one: one["original_message_id"],
            "size": lambda one: size(one["body_bytes"]),
        },
        right=("offset", "attempts", "size"),
        folds=("cause", "reason"),
    )


def letter_lines(letter: Mapping[str, Any], topic: str, body: bytes, now: datetime) -> Iterator[str]:
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
    yield from content_lines(letter["headers"], body)
