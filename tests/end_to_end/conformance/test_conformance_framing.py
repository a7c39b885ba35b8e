"""The checklist's items 1 to 17: framing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from stompbroker.stomp import render_frame
from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import V1_0, V1_1, V1_2, every_version, from_1_1_on, in_versions
from tests.stomp.reading import Outcome, Seen, read_stream
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest, Client


def header_lines(frame: bytes) -> list[bytes]:
    """The header lines of the frame that begins these bytes."""
    return frame[: frame.index(b"\n\n")].split(b"\n")[1:]


async def next_message_bytes(client: Client) -> bytes:
    """The bytes of the client's first MESSAGE, from its command on."""
    await client.next_message()
    return client.received[client.received.index(b"MESSAGE\n") :]


@every_version
async def test_item_01_a_frame_is_read_though_it_comes_byte_by_byte(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    for byte in publisher.frame("SEND", b"hello", destination="/topic/a", receipt="r"):
        await publisher.send_raw(bytes([byte]))

    await publisher.expect_receipt("r")
    assert (await subscriber.next_message()).body == b"hello"


@every_version
async def test_item_01_many_frames_are_read_from_one_chunk(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()

    await client.send_raw(
        f"CONNECT\naccept-version:{version.value}\n\n\0".encode()
        + b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SEND\ndestination:/topic/a\n\none\0"
        + b"SEND\ndestination:/topic/a\n\ntwo\0DISCO"
    )

    assert (await client.next_frame()).command == "CONNECTED"
    assert [message.body for message in await client.next_messages(2)] == [b"one", b"two"]


@every_version
async def test_item_01_a_frame_may_have_no_headers(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send_raw(b"DISCONNECT\n\n\0")

    await client.expect_closed()


@in_versions(V1_0, V1_2)
async def test_item_02_lines_may_end_in_crlf(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send_raw(b"SUBSCRIBE\r\nid:0\r\ndestination:/topic/a\r\nreceipt:r\r\n\r\n\0\r\n")
    await client.send_raw(b"SEND\r\ndestination:/topic/a\r\nx:y\r\n\r\nhello\r\n\0")

    await client.expect_receipt("r")
    message = await client.next_message()
    assert (message.headers["destination"], message.headers["x"], message.body) == ("/topic/a", "y", b"hello\r\n")


@in_versions(V1_0, V1_2)
async def test_item_02_a_body_behind_crlf_lines_may_begin_with_a_line_feed(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\r\ndestination:/topic/a\r\n\r\n\nhello\0")

    assert (await subscriber.next_message()).body == b"\nhello"


def test_item_02_in_1_1_a_carriage_return_belongs_to_the_line() -> None:
    stream = b"SEND\ndestination:/topic/a\r\n\n\0"

    assert read_stream([stream], V1_1) == Outcome([Seen("SEND", {"destination": "/topic/a\r"})])


async def test_item_02_in_1_1_an_empty_crlf_line_does_not_end_the_headers(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_1)

    await client.send_raw(b"SEND\r\ndestination:/topic/a\r\n\r\n\0")
    await client.expect_nothing()
    await client.send_raw(b"\n\n\0")

    await client.expect_error("malformed header")


@every_version
async def test_item_02_connect_may_use_crlf_since_the_version_is_not_known(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()

    await client.send_raw(f"CONNECT\r\naccept-version:{version.value}\r\nhost:test\r\n\r\n\0\r\n".encode())

    connected = await client.next_frame()
    assert (connected.command, connected.headers["version"]) == ("CONNECTED", version.value)


@pytest.mark.parametrize(
    "frame",
    [b"SE\rND\ndestination:/topic/a\n\n\0", b"SEND\ndest\rination:/topic/a\n\n\0", b"SEND\ndestination:/t\ra\n\n\0"],
    ids=["command", "name", "value"],
)
async def test_item_02_in_1_2_a_bare_carriage_return_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, frame: bytes
) -> None:
    client = await broker.client(V1_2)

    await client.send_raw(frame)

    await client.expect_error("carriage return")


@every_version
async def test_item_03_every_line_sent_ends_in_a_line_feed_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()
    end = b"\n" if version is V1_1 else b"\r\n"

    await client.send_raw(f"CONNECT\r\naccept-version:{version.value}\r\nheart-beat:0,1000\r\n\r\n\0".encode())
    assert (await client.next_frame()).command == "CONNECTED"
    await client.send_raw(end.join([b"SUBSCRIBE", b"id:0", b"destination:/topic/a", b"receipt:r", b"", b"\0"]))
    await client.expect_receipt("r")
    await client.send_raw(end.join([b"SEND", b"destination:/topic/a", b"x:y", b"", b"hello\0"]))
    await client.next_message()
    await pass_time(10.0)
    await client.send_raw(end.join([b"NONSENSE", b"", b"\0"]))
    assert (await client.next_frame()).command == "ERROR"

    assert b"\r" not in client.received


@every_version
async def test_item_04_line_ends_between_frames_are_skipped(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.open()
    gap = b"\n\n\n" if version is V1_1 else b"\n\r\n\n\r\n"

    await client.send_raw(b"\n\r\n\n" + f"CONNECT\naccept-version:{version.value}\n\n\0".encode())
    await client.send_raw(
        gap + b"BEGIN\ntransaction:t\nreceipt:1\n\n\0" + gap + b"ABORT\ntransaction:t\nreceipt:2\n\n\0"
    )
    await client.send_raw(gap)
    await client.send_raw(b"BEGIN\ntransaction:t\nreceipt:3\n\n\0")

    assert (await client.next_frame()).command == "CONNECTED"
    for receipt in ("1", "2", "3"):
        await client.expect_receipt(receipt)


@every_version
async def test_item_05_commands_are_case_sensitive(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("send", destination="/topic/a")

    await client.expect_error("unknown command", "'send'")


@every_version
async def test_item_05_header_names_are_case_sensitive(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SEND", Destination="/topic/a")

    await client.expect_error("SEND needs the header 'destination'")


@every_version
async def test_item_05_headers_are_utf_8(autojump_clock: MockClock, broker: BrokerUnderTest, version: Version) -> None:
    subscriber = await broker.subscriber("/topic/ä", version)
    publisher = await broker.client(version)

    await publisher.publish(b"", destination="/topic/ä", ключ="значение €𝄞")

    assert "ключ:значение €𝄞".encode() in header_lines(await next_message_bytes(subscriber))


@every_version
async def test_item_05_headers_that_are_not_utf_8_are_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send_raw(b"SEND\ndestination:/topic/\xe4\n\n\0")

    await client.expect_error("headers are not UTF-8")


@every_version
async def test_item_05_a_body_is_any_bytes(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)
    publisher = await broker.client(version)
    body = bytes(range(256)) * 2

    await publisher.publish(body)

    assert (await subscriber.next_message()).body == body


FRAMES_WITHOUT_BODY = {
    "SUBSCRIBE": {"id": "1", "destination": "/topic/b"},
    "UNSUBSCRIBE": {"id": "0"},
    "BEGIN": {"transaction": "new"},
    "COMMIT": {"transaction": "open"},
    "ABORT": {"transaction": "open"},
    "DISCONNECT": {},
}


@from_1_1_on
@pytest.mark.parametrize("command", FRAMES_WITHOUT_BODY)
async def test_item_06_only_send_may_carry_a_body(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.subscriber(version=version)
    if FRAMES_WITHOUT_BODY[command].get("transaction") == "open":
        await client.send("BEGIN", transaction="open")

    await client.send(command, b"body", receipt="r", **FRAMES_WITHOUT_BODY[command])

    error = await client.expect_error(f"{command} must not have a body")
    assert error.headers["receipt-id"] == "r"


@from_1_1_on
@pytest.mark.parametrize("command", ["ACK", "NACK"])
async def test_item_06_an_answer_may_not_carry_a_body(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.subscriber(version=version, ack="client")
    await client.publish(b"x")
    message = await client.next_message()
    key = {"id": message.headers["ack"]} if version is V1_2 else {"message_id": message.headers["message-id"]}

    await client.send(command, b"body", **key, subscription="0")

    await client.expect_error(f"{command} must not have a body")


@from_1_1_on
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_item_06_connect_may_not_carry_a_body(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.open()

    await client.send(command, b"body", accept_version=version.value, host="test")

    await client.expect_error(f"{command} must not have a body")


@pytest.mark.parametrize("command", FRAMES_WITHOUT_BODY)
async def test_item_06_in_1_0_such_a_body_is_ignored(
    autojump_clock: MockClock, broker: BrokerUnderTest, command: str
) -> None:
    client = await broker.subscriber(version=V1_0)
    if FRAMES_WITHOUT_BODY[command].get("transaction") == "open":
        await client.send("BEGIN", transaction="open")

    await client.send(command, b"body", receipt="r", **FRAMES_WITHOUT_BODY[command])

    await client.expect_receipt("r")


@every_version
async def test_item_06_receipt_and_connected_have_no_body(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("BEGIN", transaction="t", receipt="r")

    await client.expect_receipt("r")
    connected, receipt, rest = client.received.split(b"\0\n")
    assert connected.endswith(b"\n\n")
    assert receipt == b"RECEIPT\nreceipt-id:r\n\n"
    assert rest == b""


@every_version
async def test_item_07_content_length_counts_the_bytes_whatever_they_are(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\ncontent-length:5\n\n\0\n\0a\0\0")
    await publisher.send_raw(b"SEND\ndestination:/topic/a\n\nnext\0")

    assert [message.body for message in await subscriber.next_messages(2)] == [b"\0\n\0a\0", b"next"]


@every_version
@pytest.mark.parametrize(("command", "headers"), FRAMES_WITHOUT_BODY.items(), ids=FRAMES_WITHOUT_BODY.keys())
async def test_item_07_content_length_is_allowed_on_every_frame(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str, headers: dict[str, str]
) -> None:
    client = await broker.subscriber(version=version)
    if FRAMES_WITHOUT_BODY[command].get("transaction") == "open":
        await client.send("BEGIN", transaction="open")

    await client.send(command, content_length="0", receipt="r", **headers)

    await client.expect_receipt("r")


@every_version
async def test_item_07_content_length_is_honoured_on_every_frame(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send_raw(b"BEGIN\ntransaction:t\ncontent-length:2\n\n\0BEGIN\ntransaction:u\n\n\0")

    await client.expect_error("body does not end where its content-length says")


@every_version
@pytest.mark.parametrize("body", [b"abc", b"abcde"], ids=["shorter", "longer"])
async def test_item_07_the_byte_behind_the_announced_body_must_be_nul(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, body: bytes
) -> None:
    client = await broker.client(version)

    await client.send_raw(b"SEND\ndestination:/topic/a\ncontent-length:4\nreceipt:r\n\n" + body + b"\0\n\n")

    error = await client.expect_error("content-length", "4 bytes", "must be NUL")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("length", ["-1", "+1", "1.0", "x", "", "0x1", "1 1"])
async def test_item_07_a_content_length_that_is_no_number_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, length: str
) -> None:
    client = await broker.client(version)

    await client.send_raw(f"SEND\ndestination:/topic/a\ncontent-length:{length}\n\n\0".encode())

    await client.expect_error("malformed content-length", repr(length))


@every_version
async def test_item_08_without_content_length_a_body_ends_at_the_first_nul(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\n\none\0SEND\ndestination:/topic/a\n\ntwo\0\n")

    assert [message.body for message in await subscriber.next_messages(2)] == [b"one", b"two"]


@every_version
@pytest.mark.parametrize("body", [b"hello", b"a\0b", b""], ids=["text", "NUL", "empty"])
async def test_item_09_every_message_states_its_content_length(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, body: bytes
) -> None:
    subscriber = await broker.subscriber(version=version)
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n%b\0" % (len(body), body))

    sent = await next_message_bytes(subscriber)
    assert re.findall(rb"^content-length[:]\s*([0-9]+)", sent, re.MULTILINE) == [b"%d" % len(body)]
    assert sent.endswith(b"\n\n" + body + b"\0\n")


@every_version
async def test_item_09_every_error_states_its_content_length(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send("NONSENSE")

    error = await client.expect_error()
    sent = client.received[seen_before:]
    assert b"content-length:%d" % len(error.body) in header_lines(sent)
    assert len(error.body) > 0
    assert sent.endswith(b"\n\n" + error.body + b"\0\n")


@every_version
async def test_item_10_content_type_is_passed_on_unchanged(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)
    publisher = await broker.client(version)

    await publisher.publish(b"{}", content_type="application/json;charset=utf-8")

    assert b"content-type:application/json;charset=utf-8" in header_lines(await next_message_bytes(subscriber))


@every_version
async def test_item_10_no_content_type_is_made_up_for_a_message(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)

    await subscriber.publish(b"hello")

    assert "content-type" not in (await subscriber.next_message()).headers


@every_version
async def test_item_10_an_error_is_plain_text(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("NONSENSE")

    assert (await client.expect_error()).headers["content-type"] == "text/plain"


@every_version
async def test_item_11_the_first_of_repeated_headers_wins(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    first, second = await broker.subscriber("/topic/a"), await broker.subscriber("/topic/b")
    publisher = await broker.client(version)

    await publisher.send_raw(
        b"SEND\ndestination:/topic/a\nx:first\nreceipt:1\ndestination:/topic/b\nx:second\nreceipt:2\n\n\0"
    )

    await publisher.expect_receipt("1")
    await second.expect_nothing()
    lines = header_lines(await next_message_bytes(first))
    assert b"x:first" in lines
    assert b"x:second" not in lines
    names = [line.partition(b":")[0] for line in lines]
    assert len(names) == len(set(names))


#: How one header, name `a:b` and value `c⏎d\e` with a carriage return behind it, looks in each version.
ESCAPED = {V1_1: b"a\\cb:c\\nd\\\\e\r", V1_2: b"a\\cb:c\\nd\\\\e\\r"}
#: 1.0 cannot say it: a line feed, and a colon in a name, become two characters, so that nothing is injected.
DISFIGURED = b"a\\cb:c\\nd\\e\r"


@every_version
async def test_item_12_names_and_values_are_escaped_for_the_receivers_version(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)
    publisher = await broker.client(V1_2)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\na\\cb:c\\nd\\\\e\\r\n\n\0")

    assert ESCAPED.get(version, DISFIGURED) in header_lines(await next_message_bytes(subscriber))


@from_1_1_on
async def test_item_12_what_is_escaped_arrives_as_it_was_meant(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\na\\cb:c\\nd\\\\e\n\n\0")

    assert (await subscriber.next_message()).headers["a:b"] == "c\nd\\e"


@from_1_1_on
async def test_item_12_a_receipt_is_escaped_both_ways(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send_raw(b"BEGIN\ntransaction:t\nreceipt:a\\cb\\\\n\n\n\0")

    await client.expect_receipt("a:b\\n")
    assert client.received[seen_before:] == b"RECEIPT\nreceipt-id:a\\cb\\\\n\n\n\0\n"


async def test_item_12_in_1_0_a_backslash_is_a_backslash(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    subscriber = await broker.subscriber(version=V1_0)
    seen_before = len(subscriber.received)

    await subscriber.send_raw(b"SEND\ndestination:/topic/a\nx:\\n\\q\\\nreceipt:\\c\\\n\n\0")

    await subscriber.expect_receipt("\\c\\")
    await subscriber.next_message()
    assert b"\nx:\\n\\q\\\n" in subscriber.received[seen_before:]
    assert b"\nreceipt-id:\\c\\\n" in subscriber.received[seen_before:]


@pytest.mark.parametrize(
    ("version", "sequence"),
    [
        *((version, sequence) for version in (V1_1, V1_2) for sequence in (r"\t", r"\C", r"\:", "\\")),
        (V1_1, r"\r"),
    ],
)
@pytest.mark.parametrize("line", ["x:{}", "x{}:y", "receipt:{}"], ids=["value", "name", "receipt"])
async def test_item_12_an_undefined_sequence_is_fatal(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, sequence: str, line: str
) -> None:
    client = await broker.client(version)

    await client.send_raw(f"SEND\ndestination:/topic/a\n{line.format(sequence)}\n\n\0".encode())

    await client.expect_error("undefined escape sequence")


@every_version
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
async def test_item_12_connect_is_exempt(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.open()

    await client.send_raw(f"{command}\naccept-version:{version.value}\npasscode:a\\cb\\q\\\n\n\0".encode())

    assert (await client.next_frame()).command == "CONNECTED"
    greeting = client.session.protocol.greeting
    assert greeting is not None
    assert greeting.headers["passcode"] == "a\\cb\\q\\"


@every_version
@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
def test_item_12_the_exempt_frames_are_not_escaped_on_their_way_out_either(version: Version, command: str) -> None:
    sent = render_frame(command, [("passcode", "a:b\\c")], version=version)

    assert sent == command.encode() + b"\npasscode:a:b\\c\n\n\0"


@every_version
async def test_item_13_a_raw_colon_in_a_value_is_accepted(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)

    await publisher.send_raw(b"SEND\ndestination:/topic/a\nurl:http://h:1/\n\n\0")

    assert (await subscriber.next_message()).headers["url"] == "http://h:1/"


@from_1_1_on
async def test_item_14_nothing_is_trimmed_or_padded(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)

    await subscriber.send_raw(b"SEND\ndestination:/topic/a\n x :\t y \nreceipt: r \n\n\0")

    await subscriber.expect_receipt(" r ")
    assert b" x :\t y " in header_lines(await next_message_bytes(subscriber))


async def test_item_14_in_1_0_values_are_trimmed(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    subscriber = await broker.subscriber(version=V1_2)
    publisher = await broker.client(V1_0)

    await publisher.send_raw(b"SEND\ndestination: /topic/a \nx:\t y \nreceipt: r \n\n\0")

    await publisher.expect_receipt("r")
    message = await subscriber.next_message()
    assert (message.headers["destination"], message.headers["x"]) == ("/topic/a", "y")


async def test_item_14_in_1_0_the_headers_of_connect_are_trimmed_too(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.open()

    await client.send_raw(b"CONNECT\nlogin: me \n\n\0")

    assert (await client.next_frame()).command == "CONNECTED"
    greeting = client.session.protocol.greeting
    assert greeting is not None
    assert greeting.headers == {"login": "me"}


async def test_item_14_in_1_0_a_client_id_is_trimmed(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.open()

    await client.send_raw(b"CONNECT\nclient-id: me \n\n\0")

    assert (await client.next_frame()).command == "CONNECTED"
    assert client.session.client.client_id == "me"


@every_version
@pytest.mark.parametrize("line", ["no colon", ":no name", ":", " "])
async def test_item_15_a_header_line_needs_a_name_and_a_colon(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, line: str
) -> None:
    client = await broker.client(version)

    await client.send_raw(f"SEND\ndestination:/topic/a\n{line}\nreceipt:r\n\n\0".encode())

    error = await client.expect_error("malformed header", repr(line))
    assert error.headers["receipt-id"] == "r"


@every_version
async def test_item_15_a_value_may_be_empty(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version)

    await subscriber.publish(b"", x="")

    assert b"x:" in header_lines(await next_message_bytes(subscriber))


@every_version
@pytest.mark.parametrize(
    ("frame", "limit"),
    [
        (b"SEND\ndestination:/topic/a\n" + b"".join(b"h%d:\n" % number for number in range(20)) + b"\n\0", "20"),
        (b"SEND\ndestination:/topic/a\nx:" + b"y" * 300 + b"\n\n\0", "300"),
        (b"SEND\ndestination:/topic/a\n\n" + b"y" * 101 + b"\0", "100"),
        (b"SEND\ndestination:/topic/a\ncontent-length:101\n\n", "100"),
    ],
    ids=["header count", "header bytes", "body", "announced body"],
)
async def test_item_16_a_frame_beyond_a_limit_gets_an_error_and_the_connection_ends(
    autojump_clock: MockClock, version: Version, frame: bytes, limit: str
) -> None:
    async with running_broker(max_header_count=20, max_header_bytes=300, max_body_bytes=100) as broker:
        client = await broker.client(version)

        await client.send_raw(frame)

        await client.expect_error("too", limit)


@every_version
async def test_item_17_an_unknown_command_gets_an_error_and_the_connection_ends(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("MESSAGE", destination="/topic/a", receipt="r")

    error = await client.expect_error("unknown command", "MESSAGE", "SUBSCRIBE")
    assert error.headers["receipt-id"] == "r"
