"""Our reader of WebSocket frames, compared with that of the library websockets."""

from __future__ import annotations

import logging
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from stompbroker.transport.websocket_frames import MAX_FRAMES, MessageReader, data_header

if TYPE_CHECKING:
    from collections.abc import Iterable

DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
#: Lengths at which a header changes its form.
LENGTHS = st.sampled_from([0, 1, 2, 3, 4, 5, 125, 126, 127, 65_535, 65_536])
PAYLOADS = st.one_of(st.binary(max_size=20), st.text(max_size=8).map(str.encode), LENGTHS.map(lambda n: b"a" * n))
CONTROLS = st.builds(Frame, st.sampled_from([Opcode.PING, Opcode.PONG, Opcode.CLOSE]), st.binary(max_size=125))
FRAMES = st.one_of(st.builds(Frame, st.sampled_from(DATA), PAYLOADS, st.booleans()), CONTROLS)
CUTS = st.lists(st.integers(min_value=1, max_value=40), max_size=60)


def masked(*frames: Frame) -> bytes:
    return b"".join(frame.serialize(mask=True) for frame in frames)


def seen_by_the_library(data: bytes) -> tuple[bytes, int | None]:
    """The payload up to the end or the first mistake, and the code of the close frame that it answers with."""
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.CRITICAL)
    protocol = ServerProtocol(state=OPEN, max_size=None, logger=logger)
    protocol.receive_data(data)
    events = [event for event in protocol.events_received() if isinstance(event, Frame)]
    code = protocol.close_sent.code if protocol.close_sent is not None else None
    payload, decoder = b"", None
    for event in events:
        if event.opcode is Opcode.TEXT:
            decoder = getincrementaldecoder("utf-8")()
        if event.opcode in DATA:
            try:
                # The library leaves this to whoever reads messages.
                if decoder is not None:
                    decoder.decode(bytes(event.data), event.fin)
            except UnicodeDecodeError:
                return payload, CloseCode.INVALID_DATA
            payload += bytes(event.data)
            decoder = None if event.fin else decoder
    return payload, code


def seen_by_us(chunks: Iterable[bytes]) -> tuple[bytes, int | None]:
    reader, payload = MessageReader(), b""
    for chunk in chunks:
        payload += reader.receive(chunk)
        while reader.has_more:
            payload += reader.receive(b"")
    if not reader.is_over:
        return payload, None
    closing = reader.answers[reader.answers.rindex(bytes([0x80 | Opcode.CLOSE])) :]
    return payload, Close.parse(closing[2:]).code


def cut(data: bytes, lengths: list[int]) -> list[bytes]:
    chunks = []
    for length in lengths:
        chunks.append(data[:length])
        data = data[length:]
    return [*chunks, data]


@given(st.lists(FRAMES, max_size=8), CUTS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@example([Frame(Opcode.TEXT, "é".encode()[:1], fin=False), Frame(Opcode.CONT, "é".encode()[1:])], [])
@example([Frame(Opcode.TEXT, "é".encode()[:1])], [])
@example([Frame(Opcode.CLOSE, b"\x03\xe8\xff")], [])
@example([Frame(Opcode.CLOSE, b"\x03")], [])
@example([Frame(Opcode.CLOSE, b"\x03\xed")], [])
def test_it_reads_what_the_library_reads_however_it_is_cut(frames: list[Frame], lengths: list[int]) -> None:
    data = masked(*frames)

    expected, code = seen_by_the_library(data)
    payload, our_code = seen_by_us(cut(data, lengths))

    assert our_code == code
    # Of a frame with a mistake in it, such as text that is not UTF-8, we may have handed on the beginning.
    assert payload.startswith(expected) if code not in (None, CloseCode.NORMAL_CLOSURE) else payload == expected


@given(st.binary(max_size=300), CUTS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_garbage_is_read_or_answered_with_a_close_frame(data: bytes, lengths: list[int]) -> None:
    data += bytes(14)  # every header is complete

    payload, code = seen_by_the_library(data)
    our_payload, our_code = seen_by_us(cut(data, lengths))

    assert our_payload.startswith(payload)
    # We judge a header, or the beginning of a text, before the whole frame has come.
    assert code in (our_code, None)


def test_nothing_of_a_payload_is_kept() -> None:
    reader = MessageReader()
    data = masked(Frame(Opcode.BINARY, b"x" * 100_000))

    handed_on = reader.receive(data[:50_000])

    assert handed_on == b"x" * (50_000 - 14)
    assert reader._kept == b""


def test_pings_are_answered_and_pongs_counted() -> None:
    reader = MessageReader()

    payload = reader.receive(
        masked(Frame(Opcode.BINARY, b"a", fin=False), Frame(Opcode.PING, b"!"), Frame(Opcode.PONG, b""))
        + masked(Frame(Opcode.CONT, b"b"))
    )

    assert payload == b"ab"
    assert reader.answers == b"\x8a\x01!"
    assert reader.pongs == 1


def test_a_flood_of_small_frames_is_read_in_steps() -> None:
    reader = MessageReader()

    first = reader.receive(masked(Frame(Opcode.BINARY, b"x")) * (MAX_FRAMES + 3))

    assert first == b"x" * MAX_FRAMES
    assert reader.has_more
    assert reader.receive(b"") == b"xxx"
    assert not reader.has_more


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 1 << 40])
def test_headers_are_those_of_the_library(length: int) -> None:
    if length < 1 << 20:
        whole = Frame(Opcode.BINARY, b"x" * length).serialize(mask=False)
        assert data_header(Opcode.BINARY, length) + b"x" * length == whole
    assert data_header(Opcode.TEXT, length)[0] == 0x81
