"""How a received message is written to stdout.

Law: one function for each form, from a MESSAGE frame to bytes; nothing here does I/O.
"""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING

import typer

from stompbroker.cli.terminal import as_json
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.stomp import Frame

__all__ = ["choose_format"]

#: Bytes shown of a body that is not text: a line of hexadecimal on an ordinary terminal.
SHOWN_BINARY_BYTES = 32

#: Headers with a place of their own in the first line, or that say nothing to a person.
_NOT_LISTED = {"destination", "message-id", "subscription", "content-length", "ack", "redelivered", "delivery-count"}


def choose_format(*, as_json: bool, body_only: bool) -> Callable[[Frame], bytes]:
    if as_json:
        return _as_json_line
    return _as_body if body_only else _for_people(with_colours=sys.stdout.isatty())


def _as_json_line(message: Frame) -> bytes:
    try:
        body, encoding = message.body.decode(), "text"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    return as_json({"headers": message.headers, "body": body, "encoding": encoding}).encode() + b"\n"


def _as_body(message: Frame) -> bytes:
    return message.body + b"\n"


def _for_people(*, with_colours: bool) -> Callable[[Frame], bytes]:
    def styled(text: str, **style: bool) -> str:
        return typer.style(text, **style) if with_colours else text

    def render(message: Frame) -> bytes:
        headers = message.headers
        attempt = f", attempt {headers.get('delivery-count', '?')}" if headers.get("redelivered") == "true" else ""
        title = f"{headers.get('destination', '')}  {headers.get('message-id', '')}{attempt}"
        lines = [styled(readable(title), bold=True)]
        lines += [
            styled(readable(f"  {name}: {value}"), dim=True)
            for name, value in headers.items()
            if name not in _NOT_LISTED
        ]
        lines += [f"  {line}" for line in _body_lines(message.body)]
        return ("\n".join(lines) + "\n").encode(errors="replace")

    return render


def _body_lines(body: bytes) -> list[str]:
    try:
        return readable(body.decode(), keeps_lines=True).rstrip("\n").split("\n")
    except UnicodeDecodeError:
        rest = " …" if len(body) > SHOWN_BINARY_BYTES else ""
        return [f"({len(body):,} bytes, not text: {body[:SHOWN_BINARY_BYTES].hex(' ')}{rest})"]
