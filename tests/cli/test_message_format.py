"""How received messages are written."""

from __future__ import annotations

import json

import pytest

from stompbroker.cli.reception import SHOWN_BINARY_BYTES, choose_format
from stompbroker.stomp import Frame, Head


def message(body: bytes, **headers: str) -> Frame:
    named = {"destination": "/topic/a", "message-id": "m1", "subscription": "1", "redelivered": "false"}
    return Frame(
        Head("MESSAGE", named | {key.replace("_", "-"): value for key, value in headers.items()}, -1), body, None
    )


def shown(frame: Frame) -> str:
    return choose_format(is_json=False, body_only=False)(frame).decode()


def test_people_see_destination_own_headers_and_body() -> None:
    assert shown(message(b"Hello\nworld\n", content_type="text/plain", delivery_count="1")) == (
        "/topic/a  m1\n  content-type: text/plain\n  Hello\n  world\n"
    )


def test_people_see_which_attempt_it_is() -> None:
    assert shown(message(b"x", redelivered="true", delivery_count="3")).startswith("/topic/a  m1, attempt 3\n")


def test_a_body_cannot_control_the_terminal() -> None:
    text = shown(message(b"a\x1b[2Jb\tc\r", evil="x\x1b]0;y\x07\nforged: header"))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "  a\\x1b[2Jb\tc\\x0d\n" in text
    assert "\nforged" not in text


@pytest.mark.parametrize("length", [SHOWN_BINARY_BYTES, SHOWN_BINARY_BYTES + 1])
def test_a_body_that_is_not_text_is_shown_in_part(length: int) -> None:
    text = shown(message(b"\xff" * length))

    assert f"({length} bytes, not text: " in text
    assert text.count("ff") == SHOWN_BINARY_BYTES
    assert ("…" in text) == (length > SHOWN_BINARY_BYTES)


def test_json_is_one_line_with_headers_and_text() -> None:
    line = choose_format(is_json=True, body_only=False)(message("grüß\ndich".encode(), price="1"))

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    content = json.loads(line)
    assert (content["body"], content["encoding"], content["headers"]["price"]) == ("grüß\ndich", "text", "1")


def test_json_has_what_is_not_text_in_base64() -> None:
    content = json.loads(choose_format(is_json=True, body_only=False)(message(b"\x00\xff")))

    assert (content["body"], content["encoding"]) == ("AP8=", "base64")


def test_a_body_alone_is_written_as_it_is() -> None:
    assert choose_format(is_json=False, body_only=True)(message(b"\x00\xff\x1b")) == b"\x00\xff\x1b\n"
