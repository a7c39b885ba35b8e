"""A message's headers and body, as commands show them, and its body written to a file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.terminal import say
from stompbroker.cli.wording import counted, size
from stompbroker.visible_text import readable

#: Bytes shown of a body that is not text: 64 lines.
SHOWN_BINARY_BYTES = 1_024
_BYTES_A_LINE = 16
#: Control characters of text. With any other, a body is binary data that happens to be UTF-8.
_TEXT_CONTROLS = frozenset("\t\n\f\r\x1b")
BodyOption = Annotated[
    str | None,
    typer.Option("--body", metavar="FILE", help="Write the body, byte by byte, to this file; - is stdout."),
]


def content_lines(headers: Iterable[tuple[str, str]], body: bytes) -> Iterator[str]:
    yield "Headers"
    yield from (f"  {readable(name)}: {readable(value)}" for name, value in headers)
    yield from _body_lines(body)


def write_body(body: bytes, file: str) -> None:
    if file == "-":
        typer.get_binary_stream("stdout").write(body)
        return
    try:
        Path(file).write_bytes(body)
    except OSError as error:
        raise CommandFailed(f"The body cannot be written to {file}: {error.strerror}.") from error
    say(f"Wrote the body, {counted(len(body), 'byte')}, to {file}.")


def _body_lines(body: bytes) -> Iterator[str]:
    text = _as_text(body)
    if not body:
        yield "No body"
    elif text is not None:
        yield f"Body ({size(len(body))})"
        yield from (f"  {line}" for line in readable(text, keeps_lines=True).removesuffix("\n").split("\n"))
    else:
        yield f"Body ({size(len(body))}, not text)"
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
    """As `hexdump -C` writes it."""
    for start in range(0, len(data), _BYTES_A_LINE):
        part = data[start : start + _BYTES_A_LINE]
        signs = "".join(chr(code) if 0x20 <= code < 0x7F else "." for code in part)
        yield f"  {start:08x}  {part.hex(' '):{3 * _BYTES_A_LINE - 1}}  {signs}"
