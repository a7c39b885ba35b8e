"""`stompbroker publish`: send messages."""

import os
import sys
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from stompbroker.cli.options import HeaderOption, JsonOption, read_headers, require_utf8
from stompbroker.cli.outcome import run
from stompbroker.cli.target import (
    CaOption,
    CertificateOption,
    HostOption,
    KeyOption,
    PortOption,
    UrlOption,
    find_target,
)
from stompbroker.cli.terminal import say, say_json

#: Fewer messages than this are sent before a progress bar can be read, unless their rate is limited.
PROGRESS_FROM_COUNT = 10_000

#: Headers that the command sets itself, and what to use instead.
_RESERVED = {
    "destination": "the argument DEST",
    "receipt": "--receipt",
    "content-length": "the length of the body",
}


def publish(
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="Where to, for example /topic/greetings or /queue/jobs.")
    ],
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The message; - or nothing reads it from standard input.")
    ] = None,
    header: HeaderOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send it this many times.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="At most this many messages a second.", show_default="as fast as possible"),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message for each line of standard input.")] = False,
    number: Annotated[bool, typer.Option("--number", help="Replace {n} in the body by the message's number.")] = False,
    receipt: Annotated[
        bool, typer.Option("--receipt/--no-receipt", help="Wait until the broker has confirmed every message.")
    ] = True,
    host: HostOption = None,
    port: PortOption = None,
    url: UrlOption = None,
    ca: CaOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send messages to a destination.

    A topic gives each message to all who subscribe; a queue keeps it until one consumer has acknowledged it.

    With a NAME in the URL, the password comes from STOMPBROKER_PASSWORD, or is asked for on the terminal. A token comes
    from STOMPBROKER_TOKEN.

    Examples:

    $ stompbroker publish /topic/greetings "Hello, world"
    $ stompbroker publish /queue/jobs "Do this"
    $ stompbroker publish /topic/prices "price {n}" --count 1000 --rate 50 --number
    $ stompbroker publish /topic/orders -H content-type:application/json < order.json
    $ tail -f access.log | stompbroker publish /topic/access --lines
    $ stompbroker publish --url stomp+tls://alice@broker.example /topic/orders "Order 1"
    """
    reads_input = body is None or body == "-"
    if lines and not reads_input:
        raise typer.BadParameter("reads standard input; leave BODY out", param_hint="--lines")
    if lines and count != 1:
        raise typer.BadParameter("sends each line once; leave --count out", param_hint="--lines")
    require_utf8(destination, "DEST")
    headers = read_headers(header, reserved=_RESERVED)
    target = find_target(host, port, url, ca=ca, certificate=certificate, key=key)

    from stompbroker.cli.publication import Publication

    is_long = sys.stderr.isatty() and (count >= PROGRESS_FROM_COUNT or (rate is not None and count > rate))
    publication = Publication(
        destination=destination,
        headers=headers,
        bodies=_bodies(body if not reads_input else None, count, by_lines=lines),
        count=None if lines else count,
        rate=rate,
        is_numbered=number,
        wants_receipts=receipt,
        shows_progress=is_long and not as_json,
    )
    run(publication.publish, target)
    if as_json:
        say_json(publication.as_json())
    else:
        say(publication.as_text())


def _bodies(body: str | None, count: int, *, by_lines: bool) -> AsyncIterator[list[bytes]]:
    """Without a body they come from standard input."""
    from stompbroker.cli.publication import repeated, typed_lines

    if body is not None:
        return repeated(os.fsencode(body), count)
    if sys.stdin.isatty():
        what = "messages, one a line" if by_lines else "message"
        say(f"Type the {what}; Ctrl-D on an empty line ends.", err=True)
    return typed_lines() if by_lines else repeated(sys.stdin.buffer.read(), count)
