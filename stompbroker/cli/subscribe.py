"""`stompbroker subscribe`: receive messages and show them.

Law: a message is acknowledged only after it has been written out; what cannot be written is not acknowledged.
Ctrl-C, a full count and a closed stdout (`| head`) all end politely, with DISCONNECT.
"""

from enum import StrEnum
from typing import Annotated

import typer

from stompbroker.cli.options import (
    HeaderOption,
    HostOption,
    JsonOption,
    PortOption,
    broker_address,
    read_headers,
    require_utf8,
)

__all__ = ["AckMode", "subscribe"]


class AckMode(StrEnum):
    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


def subscribe(
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="What to receive: /topic/greetings, or a pattern such as prices.*")
    ],
    ack: Annotated[
        AckMode, typer.Option(help="auto: the broker forgets what it sent; otherwise each message is acknowledged.")
    ] = AckMode.AUTO,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many.", show_default="go on")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Stop when no message comes for so long.", show_default="wait"),
    ] = None,
    # Accepted because people type it; there is nothing else to do.
    follow: Annotated[
        bool, typer.Option("--follow", "-f", show_default=False, help="Go on until Ctrl-C; the default.")
    ] = True,
    header: HeaderOption = None,
    body_only: Annotated[bool, typer.Option("--body-only", help="Write bodies alone, each with a line end.")] = False,
    host: HostOption = None,
    port: PortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Receive messages and show them, until Ctrl-C.

    With --json each line is an object with headers, body and encoding ("text", or "base64" for what is not UTF-8).

    The exit code is 1 if --timeout ends it before --count is reached.

    Examples:

    $ stompbroker subscribe /topic/greetings
    $ stompbroker subscribe "prices.*" --ack client -H prefetch-count:10
    $ stompbroker subscribe /topic/orders --json | jq .body
    $ stompbroker subscribe /topic/orders --count 1 --timeout 5 --body-only
    """
    if as_json and body_only:
        raise typer.BadParameter("cannot be combined with --json", param_hint="--body-only")
    require_utf8(destination, "DEST")
    reserved = {
        "destination": "the argument DEST",
        "ack": "--ack",
        "id": "the command; it has one subscription",
        "receipt": "the command",
    }
    headers = read_headers(header, reserved=reserved)
    address = broker_address(host, port)

    from stompbroker.cli.message_format import choose_format
    from stompbroker.cli.outcome import run
    from stompbroker.cli.reception import Reception, receive_all

    reception = Reception(
        destination=destination,
        headers=headers,
        ack=ack.value,
        count=count,
        timeout_s=timeout,
        render=choose_format(as_json=as_json, body_only=body_only),
    )
    run(receive_all, address, reception)
