"""Bytes → frames: every sample is fed whole, byte by byte, cut at every place, and with more behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.errors import PeerViolation
from stompbroker.stomp import MAX_FRAMES_PER_CALL, AnswerRun, FrameReader, Limits, SendRun, Version
from stompbroker.stomp.heads import LF_SEPARATOR
from tests.stomp.reading import Outcome, Seen, connection, cuts, flattened, one_by_one, outcome, read_stream, reader
from tests.support.work import operations

if TYPE_CHECKING:
    from stompbroker.stomp import Frame

V1_0, V1_1, V1_2 = Version


class Sample(NamedTuple):
    """A stream and what it says, in each of `versions`; None is before CONNECT."""

    stream: bytes
    frames: list[Seen]
    versions: tuple[Version | None, ...] = (V1_0, V1_1, V1_2)


_LIKE_A_RECEIPT: Final = b"receipt:vvvvvvvvvvvvvv\n................."

_WITHOUT_A_RECEIPT: Final = b"SEND\ndestination:/topic/a\ncontent-length:40\n\n%b\0" % _LIKE_A_RECEIPT

SAMPLES: Final = {
    # Every command a client can send.
    "CONNECT": Sample(
        b"CONNECT\naccept-version:1.1,1.2\nhost:stomp.example.org\n\n\0",
        [Seen("CONNECT", {"accept-version": "1.1,1.2", "host": "stomp.example.org"})],
        (None,),
    ),
    "CONNECT with CRLF": Sample(
        b"CONNECT\r\naccept-version:1.2\r\nlogin:me\r\n\r\n\0",
        [Seen("CONNECT", {"accept-version": "1.2", "login": "me"})],
        (None,),
    ),
    "CONNECT without headers": Sample(b"CONNECT\n\n\0", [Seen("CONNECT", {})], (None,)),
    "CONNECT is not unescaped": Sample(
        b"CONNECT\npasscode:a\\cb\\\\c\\q\n\n\0", [Seen("CONNECT", {"passcode": r"a\cb\\c\q"})], (None,)
    ),
    "CONNECT with a receipt": Sample(
        b"CONNECT\nreceipt:a\\cb\nhost:h\n\n\0", [Seen("CONNECT", {"host": "h"}, b"", r"a\cb")], (None,)
    ),
    "STOMP": Sample(b"STOMP\nhost: padded \n\n\0", [Seen("STOMP", {"host": " padded "})], (None,)),
    "STOMP is not unescaped": Sample(b"STOMP\npasscode:\\c\n\n\0", [Seen("STOMP", {"passcode": r"\c"})], (None,)),
    "SEND": Sample(
        b"SEND\ndestination:/topic/a\ncontent-type:text/plain\n\nhello\0",
        [Seen("SEND", {"destination": "/topic/a", "content-type": "text/plain"}, b"hello")],
    ),
    "SUBSCRIBE": Sample(
        b"SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client\n\n\0",
        [Seen("SUBSCRIBE", {"id": "0", "destination": "/topic/a", "ack": "client"})],
    ),
    "UNSUBSCRIBE": Sample(b"UNSUBSCRIBE\nid:0\n\n\0", [Seen("UNSUBSCRIBE", {"id": "0"})]),
    "ACK": Sample(b"ACK\nid:1-1\ntransaction:t\n\n\0", [Seen("ACK", {"id": "1-1", "transaction": "t"})]),
    "NACK": Sample(b"NACK\nid:1-1\nreason:busy\n\n\0", [Seen("NACK", {"id": "1-1", "reason": "busy"})]),
    "BEGIN": Sample(b"BEGIN\ntransaction:t\n\n\0", [Seen("BEGIN", {"transaction": "t"})]),
    "COMMIT": Sample(b"COMMIT\ntransaction:t\n\n\0", [Seen("COMMIT", {"transaction": "t"})]),
    "ABORT": Sample(b"ABORT\ntransaction:t\n\n\0", [Seen("ABORT", {"transaction": "t"})]),
    "DISCONNECT": Sample(b"DISCONNECT\nreceipt:77\n\n\0", [Seen("DISCONNECT", {}, b"", "77")]),
    # Every frame a server can send: the reader serves the command line's client as well.
    "CONNECTED": Sample(
        b"CONNECTED\nversion:1.2\nserver:a\\cb\n\n\0", [Seen("CONNECTED", {"version": "1.2", "server": r"a\cb"})]
    ),
    "MESSAGE": Sample(
        b"MESSAGE\nsubscription:0\nmessage-id:m-1\ndestination:/topic/a\ncontent-length:3\n\na\0b\0",
        [
            Seen(
                "MESSAGE",
                {"subscription": "0", "message-id": "m-1", "destination": "/topic/a", "content-length": "3"},
                b"a\0b",
            )
        ],
    ),
    "RECEIPT": Sample(b"RECEIPT\nreceipt-id:77\n\n\0", [Seen("RECEIPT", {"receipt-id": "77"})]),
    "ERROR": Sample(b"ERROR\nmessage:no\n\nbecause\0", [Seen("ERROR", {"message": "no"}, b"because")]),
    # Line ends.
    "CRLF": Sample(
        b"SEND\r\ndestination:/topic/a\r\nreceipt:1\r\n\r\nhello\0",
        [Seen("SEND", {"destination": "/topic/a"}, b"hello", "1")],
        (V1_0, V1_2),
    ),
    "CRLF and LF mixed": Sample(
        b"SEND\ndestination:/topic/a\r\nx:y\n\r\nhello\0SEND\r\ndestination:/topic/a\n\nhello\0",
        [
            Seen("SEND", {"destination": "/topic/a", "x": "y"}, b"hello"),
            Seen("SEND", {"destination": "/topic/a"}, b"hello"),
        ],
        (V1_0, V1_2),
    ),
    "CRLF, and a body that begins with a line feed": Sample(
        b"SEND\r\ndestination:/topic/a\r\n\r\n\nhello\0",
        [Seen("SEND", {"destination": "/topic/a"}, b"\nhello")],
        (V1_0, V1_2),
    ),
    "LF, and a body that begins with a line feed": Sample(
        b"SEND\ndestination:/topic/a\n\n\nhello\0", [Seen("SEND", {"destination": "/topic/a"}, b"\nhello")]
    ),
    "LF, and a body that holds an empty CRLF line": Sample(
        b"SEND\ndestination:/topic/a\n\na\r\n\r\nb\0", [Seen("SEND", {"destination": "/topic/a"}, b"a\r\n\r\nb")]
    ),
    "CRLF, and a body that holds an empty LF line": Sample(
        b"SEND\r\ndestination:/topic/a\r\n\r\na\n\nb\0",
        [Seen("SEND", {"destination": "/topic/a"}, b"a\n\nb")],
        (V1_0, V1_2),
    ),
    "the other kind of line ends after repeats of one": Sample(
        b"SEND\r\ndestination:/topic/a\r\n\r\n1\0" * 3
        + b"SEND\ndestination:/topic/a\n\n2\0" * 3
        + b"SEND\r\ndestination:/topic/a\r\n\r\n3\0",
        [Seen("SEND", {"destination": "/topic/a"}, body) for body in (b"1", b"1", b"1", b"2", b"2", b"2", b"3")],
        (V1_0, V1_2),
    ),
    "a carriage return belongs to a line of 1.1": Sample(
        b"SEND\ndestination:/topic/a\r\nx:a\rb\n\n\0",
        [Seen("SEND", {"destination": "/topic/a\r", "x": "a\rb"})],
        (V1_1,),
    ),
    "line feeds around frames": Sample(
        b"\n\n\nBEGIN\ntransaction:t\n\n\0\n\nABORT\ntransaction:t\n\n\0\n\n\n",
        [Seen("BEGIN", {"transaction": "t"}), Seen("ABORT", {"transaction": "t"})],
    ),
    "CRLF around frames": Sample(
        b"\r\n\n\r\nBEGIN\ntransaction:t\n\n\0\r\n\r\nABORT\ntransaction:t\n\n\0\n\r\n",
        [Seen("BEGIN", {"transaction": "t"}), Seen("ABORT", {"transaction": "t"})],
        (V1_0, V1_2),
    ),
    "heart-beats only": Sample(b"\n\n\n\n", []),
    # Bodies.
    "NULs in a body with content-length": Sample(
        b"SEND\ndestination:/topic/a\ncontent-length:4\n\n\0\0\n\0\0",
        [Seen("SEND", {"destination": "/topic/a", "content-length": "4"}, b"\0\0\n\0")],
    ),
    "a body that looks like a frame": Sample(
        b"SEND\ndestination:/topic/a\ncontent-length:11\n\nABORT\n\n\0\n\n\0\0",
        [Seen("SEND", {"destination": "/topic/a", "content-length": "11"}, b"ABORT\n\n\0\n\n\0")],
    ),
    "content-length 0": Sample(
        b"SEND\ndestination:/topic/a\ncontent-length:0\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "content-length": "0"})],
    ),
    "content-length on a frame without body": Sample(
        b"BEGIN\ntransaction:t\ncontent-length:0\n\n\0",
        [Seen("BEGIN", {"transaction": "t", "content-length": "0"})],
    ),
    "a body that is no text": Sample(
        b"SEND\ndestination:/topic/a\n\n\xff\xfe\x80\0", [Seen("SEND", {"destination": "/topic/a"}, b"\xff\xfe\x80")]
    ),
    "a body that holds a receipt line": Sample(
        b"SEND\ndestination:/topic/a\n\nx\nreceipt:no\n\ny\0",
        [Seen("SEND", {"destination": "/topic/a"}, b"x\nreceipt:no\n\ny")],
    ),
    "repeated frames whose bodies hold a receipt line": Sample(
        b"SEND\r\ndestination:/topic/a\r\n\r\nreceipt:no\n\ny\0" * 4,
        [Seen("SEND", {"destination": "/topic/a"}, b"receipt:no\n\ny")] * 4,
        (V1_0, V1_2),
    ),
    "repeated frames whose bodies begin as a receipt line, after one that has a receipt and other line ends": Sample(
        _WITHOUT_A_RECEIPT
        + b"SEND\ndestination:/topic/a\ncontent-length:40\nreceipt:1\n\r\n"
        + _LIKE_A_RECEIPT
        + b"\0"
        # The frames behind these two end where a body behind the supposed receipt would.
        + _WITHOUT_A_RECEIPT * 2
        + b"BEGIN\ntransaction:t\n\n\0BEGIN\r\ntransaction:u\r\n\r\n\0",
        [
            Seen("SEND", {"destination": "/topic/a", "content-length": "40"}, _LIKE_A_RECEIPT),
            Seen("SEND", {"destination": "/topic/a", "content-length": "40"}, _LIKE_A_RECEIPT, "1"),
            *[Seen("SEND", {"destination": "/topic/a", "content-length": "40"}, _LIKE_A_RECEIPT)] * 2,
            Seen("BEGIN", {"transaction": "t"}),
            Seen("BEGIN", {"transaction": "u"}),
        ],
        (V1_0, V1_2),
    ),
    # Receipts, anywhere in the headers.
    "receipt first": Sample(
        b"SEND\nreceipt:r\ndestination:/topic/a\n\n\0", [Seen("SEND", {"destination": "/topic/a"}, b"", "r")]
    ),
    "receipt in the middle": Sample(
        b"SEND\ndestination:/topic/a\nreceipt:r\nx:y\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "x": "y"}, b"", "r")],
    ),
    "receipt last": Sample(
        b"SEND\ndestination:/topic/a\nreceipt:r\n\n\0", [Seen("SEND", {"destination": "/topic/a"}, b"", "r")]
    ),
    "receipt last, with CRLF": Sample(
        b"SEND\r\ndestination:/topic/a\r\nreceipt:r\r\n\r\n\0" * 3,
        [Seen("SEND", {"destination": "/topic/a"}, b"", "r")] * 3,
        (V1_0, V1_2),
    ),
    "an empty receipt": Sample(
        b"SEND\ndestination:/topic/a\nreceipt:\n\n\0", [Seen("SEND", {"destination": "/topic/a"}, b"", "")]
    ),
    "an escaped receipt": Sample(
        b"SEND\ndestination:/topic/a\nreceipt:a\\cb\\\\\n\n\0" * 3,
        [Seen("SEND", {"destination": "/topic/a"}, b"", "a:b\\")] * 3,
        (V1_1, V1_2),
    ),
    "a padded receipt of 1.0": Sample(
        b"SEND\ndestination:/topic/a\nreceipt: r \n\n\0" * 3,
        [Seen("SEND", {"destination": "/topic/a"}, b"", "r")] * 3,
        (V1_0,),
    ),
    "headers that only resemble a receipt": Sample(
        b"SEND\ndestination:/topic/a\nreceipt-id:1\nmy-receipt:2\nReceipt:3\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "receipt-id": "1", "my-receipt": "2", "Receipt": "3"})],
    ),
    "the same headers with a new receipt each": Sample(
        b"".join(b"SEND\ndestination:/topic/a\nreceipt:%d\nx:y\n\nz\0\n" % number for number in range(6)),
        [Seen("SEND", {"destination": "/topic/a", "x": "y"}, b"z", str(number)) for number in range(6)],
    ),
    **{
        f"frames of known length that differ in their receipts, {name}": Sample(
            b"".join(
                b"SEND\ndestination:/topic/a\nreceipt:%b\ncontent-length:2\n\n\0%d\0%b"
                % (value.encode().replace(b":", b"\\c"), number, b"\n" * (number % 3))
                for number, value in enumerate(values)
            ),
            [
                Seen("SEND", {"destination": "/topic/a", "content-length": "2"}, b"\0%d" % number, value)
                for number, value in enumerate(values)
            ],
            (V1_1, V1_2),
        )
        for name, values in {
            "plain": ["a", "", "b c", "", "1234567", "a"],
            "one escaped": ["a", "b", "c:d", "e", "f"],
            "one in Greek": ["a", "b", "λ", "d", "e"],
        }.items()
    },
    "frames of known length that repeat, with a second receipt line": Sample(
        b"SEND\ndestination:/topic/a\nreceipt:a\nreceipt:b\ncontent-length:1\n\nx\0" * 4,
        [Seen("SEND", {"destination": "/topic/a", "receipt": "b", "content-length": "1"}, b"x", "a")] * 4,
    ),
    "frames of known length that repeat with a receipt, with CRLF": Sample(
        b"SEND\r\ndestination:/topic/a\r\nreceipt:a\r\ncontent-length:1\r\n\r\nx\0" * 4,
        [Seen("SEND", {"destination": "/topic/a", "content-length": "1"}, b"x", "a")] * 4,
        (V1_0, V1_2),
    ),
    # Headers.
    "repeated headers": Sample(
        b"SEND\ndestination:/topic/a\nx:first\nx:second\ndestination:/topic/b\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "x": "first"})],
    ),
    "escapes of 1.1 and 1.2": Sample(
        b"SEND\ndestination:/topic/a\n\\c\\n\\\\:\\\\n\\c\\n\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", ":\n\\": "\\n:\n"})],
        (V1_1, V1_2),
    ),
    "the escape of 1.2 alone": Sample(
        b"SEND\ndestination:/topic/a\nx:\\r\n\n\0", [Seen("SEND", {"destination": "/topic/a", "x": "\r"})], (V1_2,)
    ),
    "no escapes in 1.0": Sample(
        b"SEND\ndestination:/topic/a\nx:\\n\\q\\\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "x": "\\n\\q\\"})],
        (V1_0,),
    ),
    "raw colons in a value": Sample(
        b"SEND\ndestination:/topic/a\nurl:http://x:1\n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "url": "http://x:1"})],
    ),
    "an empty value": Sample(
        b"SEND\ndestination:/topic/a\nx:\n\n\0", [Seen("SEND", {"destination": "/topic/a", "x": ""})]
    ),
    "blanks that are kept": Sample(
        b"SEND\ndestination:/topic/a\n x : y \n\n\0",
        [Seen("SEND", {"destination": "/topic/a", " x ": " y "})],
        (V1_1, V1_2),
    ),
    "blanks that are trimmed": Sample(
        b"SEND\ndestination:  /topic/a\nx:\ty \n\n\0",
        [Seen("SEND", {"destination": "/topic/a", "x": "y"})],
        (V1_0,),
    ),
    "UTF-8": Sample(
        "SEND\ndestination:/topic/ä\nключ:значение €𝄞\n\nö\0".encode(),
        [Seen("SEND", {"destination": "/topic/ä", "ключ": "значение €𝄞"}, "ö".encode())],
    ),
    # Messages in a row.
    "the same head over and over": Sample(
        b"".join(b"SEND\ndestination:/topic/a\n\n%d\0" % number for number in range(5)),
        [Seen("SEND", {"destination": "/topic/a"}, b"%d" % number) for number in range(5)],
    ),
    "the same head with content-length over and over": Sample(
        b"".join(b"SEND\ncontent-length:2\n\n\0%d\0" % number for number in range(5)),
        [Seen("SEND", {"content-length": "2"}, b"\0%d" % number) for number in range(5)],
    ),
    "the same head with content-length and line feeds between": Sample(
        b"".join(b"SEND\ncontent-length:2\n\n%d\0\0" % number + b"\n" * number for number in range(5)),
        [Seen("SEND", {"content-length": "2"}, b"%d\0" % number) for number in range(5)],
    ),
    "the same head with content-length and CRLF between": Sample(
        b"".join(b"SEND\r\ncontent-length:1\r\n\r\n%d\0\r\n" % number for number in range(5)),
        [Seen("SEND", {"content-length": "1"}, b"%d" % number) for number in range(5)],
        (V1_0, V1_2),
    ),
    "the same head, some with receipts": Sample(
        b"".join(
            b"SEND\ncontent-length:1\n%b\n%d\0" % (b"receipt:%d\n" % number if number in (3, 4, 7) else b"", number)
            for number in range(9)
        ),
        [
            Seen("SEND", {"content-length": "1"}, b"%d" % number, str(number) if number in (3, 4, 7) else None)
            for number in range(9)
        ],
    ),
    "the same head in transactions": Sample(
        b"SEND\ntransaction:t\ncontent-length:1\n\nx\0" * 4,
        [Seen("SEND", {"transaction": "t", "content-length": "1"}, b"x")] * 4,
    ),
    "two heads by turns": Sample(
        (b"SEND\ndestination:a\ncontent-length:1\n\nx\0" * 3 + b"SEND\ndestination:b\ncontent-length:1\n\ny\0") * 2,
        (
            [Seen("SEND", {"destination": "a", "content-length": "1"}, b"x")] * 3
            + [Seen("SEND", {"destination": "b", "content-length": "1"}, b"y")]
        )
        * 2,
    ),
    "a longer head that begins like those before": Sample(
        b"SEND\ncontent-length:0\n\n\0" * 3 + b"SEND\ncontent-length:0\nx:y\n\n\0",
        [Seen("SEND", {"content-length": "0"})] * 3 + [Seen("SEND", {"content-length": "0", "x": "y"})],
    ),
    # Acknowledgements in a row.
    "bare ACKs": Sample(
        b"".join(b"ACK\nid:1-%d\n\n\0" % number for number in range(1, 6)),
        [Seen("ACK", {"id": f"1-{number}"}) for number in range(1, 6)],
    ),
    "empty lines of both kinds between frames": Sample(
        b"\n\r\nSEND\n\na\0\r\n\r\n\n\n\r\nSEND\n\nb\0\r\n",
        [Seen("SEND", {}, b"a"), Seen("SEND", {}, b"b")],
        (None, V1_0, V1_2),
    ),
    "bare ACKs with line feeds": Sample(
        b"".join(b"ACK\nid:%d-7\n\n\0\n" % number for number in range(1, 5)),
        [Seen("ACK", {"id": f"{number}-7"}) for number in range(1, 5)],
    ),
    "bare ACKs with heart-beats and CRLF between": Sample(
        b"ACK\nid:1-1\n\n\0\n\n\nACK\nid:1-2\n\n\0ACK\nid:1-3\n\n\0\r\nACK\r\nid:1-4\r\n\r\n\0ACK\nid:1-5\n\n\0",
        [Seen("ACK", {"id": f"1-{number}"}) for number in range(1, 6)],
        (V1_0, V1_2),
    ),
    "bare ACKs among others": Sample(
        b"SEND\ndestination:/topic/a\n\nx\0ACK\nid:1-1\n\n\0ACK\nid:1-2\n\n\0ACK\nid:1-3\nreceipt:r\n\n\0"
        b"ACK\nid:1-4\n\n\0ACK\nid:odd\n\n\0ACK\nid:1-5\n\nbody\0ACK\nid:1-6\n\n\0NACK\nid:1-7\n\n\0",
        [
            Seen("SEND", {"destination": "/topic/a"}, b"x"),
            Seen("ACK", {"id": "1-1"}),
            Seen("ACK", {"id": "1-2"}),
            Seen("ACK", {"id": "1-3"}, b"", "r"),
            Seen("ACK", {"id": "1-4"}),
            Seen("ACK", {"id": "odd"}),
            Seen("ACK", {"id": "1-5"}, b"body"),
            Seen("ACK", {"id": "1-6"}),
            Seen("NACK", {"id": "1-7"}),
        ],
    ),
    "bare ACKs with ids too long to be ours": Sample(
        b"ACK\nid:1-%b\n\n\0" % (b"9" * 19) * 2 + b"ACK\nid:1-1\n\n\0" * 2,
        [Seen("ACK", {"id": "1-" + "9" * 19})] * 2 + [Seen("ACK", {"id": "1-1"})] * 2,
    ),
}

EVERY_SAMPLE = pytest.mark.parametrize(
    ("sample", "version"),
    [
        pytest.param(sample, version, id=f"{name} [{version.value if version else 'before CONNECT'}]")
        for name, sample in SAMPLES.items()
        for version in sample.versions
    ],
)


@EVERY_SAMPLE
def test_a_sample_says_the_same_wherever_it_is_cut(sample: Sample, version: Version | None) -> None:
    for chunks in cuts(sample.stream):
        assert read_stream(chunks, version) == Outcome(sample.frames), chunks


@EVERY_SAMPLE
@pytest.mark.parametrize(
    "trailing",
    [b"\n", b"S", b"SEND\ndestination:/topic/z\nreceipt:1\n", b"SEND\n\nbody"],
    ids=["heart-beat", "one letter", "unfinished headers", "unfinished body"],
)
def test_the_beginning_of_another_frame_changes_nothing(
    sample: Sample, version: Version | None, trailing: bytes
) -> None:
    for chunks in ([sample.stream + trailing], [sample.stream, trailing]):
        under_test = reader(version)

        assert outcome(under_test, chunks) == Outcome(sample.frames)
        assert under_test.pending_bytes == len(trailing.lstrip(b"\n"))


@EVERY_SAMPLE
def test_a_frame_right_behind_is_read_as_well(sample: Sample, version: Version | None) -> None:
    behind = b"SEND\ndestination:/topic/z\n\nlast\0"

    for chunks in ([sample.stream + behind], [sample.stream, behind]):
        assert read_stream(chunks, version) == Outcome(
            [*sample.frames, Seen("SEND", {"destination": "/topic/z"}, b"last")]
        )


@EVERY_SAMPLE
def test_nothing_is_pending_after_whole_frames(sample: Sample, version: Version | None) -> None:
    for chunks in cuts(sample.stream):
        under_test = reader(version)

        outcome(under_test, chunks)

        assert under_test.pending_bytes == 0
        assert not under_test.has_more


BROKEN: Final = {
    "a header without a colon": (b"SEND\ndestination\n\n\0", "malformed header", (V1_0, V1_1, V1_2)),
    "a header without a name": (b"SEND\n:x\n\n\0", "malformed header", (V1_0, V1_1, V1_2)),
    "an undefined escape": (b"SEND\nx:\\t\n\n\0", "undefined escape sequence", (V1_1, V1_2)),
    "an undefined escape in a receipt": (b"SEND\nreceipt:\\t\n\n\0", "undefined escape sequence", (V1_1, V1_2)),
    "a lone backslash at the end": (b"SEND\nx:y\\\n\n\0", "undefined escape sequence", (V1_1, V1_2)),
    "the 1.2 escape in 1.1": (b"SEND\nx:\\r\n\n\0", "undefined escape sequence", (V1_1,)),
    "a CR inside a line": (b"SEND\nx:a\rb\n\n\0", "carriage return inside a header line", (V1_2,)),
    "a CR inside the command": (b"SE\rND\nx:y\n\n\0", "carriage return inside a header line", (V1_2,)),
    "a CR inside a receipt": (b"SEND\nreceipt:a\rb\n\n\0", "carriage return inside a header line", (V1_2,)),
    "an empty CRLF line in 1.1": (b"SEND\r\nx:y\r\n\r\n\n\0", "malformed header", (V1_1,)),
    "not UTF-8": (b"SEND\nx:\xff\n\n\0", "headers are not UTF-8", (V1_0, V1_1, V1_2)),
    "a receipt that is not UTF-8": (b"SEND\nreceipt:\xff\n\n\0", "headers are not UTF-8", (V1_0, V1_1, V1_2)),
    "a negative content-length": (b"SEND\ncontent-length:-1\n\n\0", "malformed content-length", (V1_0, V1_1, V1_2)),
    "a content-length in words": (b"SEND\ncontent-length:two\n\nab\0", "malformed content-length", (V1_1, V1_2)),
    "a content-length in foreign digits": (
        "SEND\ncontent-length:٢\n\nab\0".encode(),
        "malformed content-length",
        (V1_0, V1_1, V1_2),
    ),
    "a content-length that is too small": (
        b"SEND\ncontent-length:2\n\nabc\0",
        "body does not end where its content-length says",
        (V1_0, V1_1, V1_2),
    ),
    "a content-length that reaches into the next frame": (
        b"SEND\ncontent-length:9\n\nabc\0BEGIN\ntransaction:t\n\n\0",
        "body does not end where its content-length says",
        (V1_0, V1_1, V1_2),
    ),
}


@pytest.mark.parametrize(
    ("stream", "summary", "version"),
    [
        pytest.param(stream, summary, version, id=f"{name} [{version.value}]")
        for name, (stream, summary, versions) in BROKEN.items()
        for version in versions
    ],
)
def test_what_stood_before_a_mistake_is_read_first_wherever_it_is_cut(
    stream: bytes, summary: str, version: Version
) -> None:
    good = b"BEGIN\ntransaction:t\nreceipt:r\n\n\0\n"

    for chunks in cuts(good + stream):
        assert read_stream(chunks, version) == Outcome([Seen("BEGIN", {"transaction": "t"}, b"", "r")], summary)


def test_nothing_is_read_after_a_mistake() -> None:
    under_test = reader(V1_2)
    broken = b"SEND\nno colon\n\n\0"
    first = outcome(under_test, [broken])

    second = outcome(under_test, [b"BEGIN\ntransaction:t\n\n\0"])

    assert first == second == Outcome([], "malformed header")


TRANSCRIPT: Final = (
    b"\nSTOMP\r\naccept-version:1.1,1.2\r\nhost:a\\cb\r\nreceipt:ignored\r\n\r\n\0\n"
    b"SUBSCRIBE\nid:a\\cb\ndestination:/topic/a\nack:client-individual\nreceipt:1\n\n\0"
    b"SEND\ndestination:/topic/a\ncontent-length:3\n\n\0\n\0\0\n\n"
    b"ACK\nid:1-1\n\n\0ACK\nid:1-2\n\n\0ACK\nid:1-3\n\n\0"
    b"DISCONNECT\nreceipt:2\n\n\0"
    b"\xff no frame at all \0\n\n\0SEND\n\n\0"
)
TRANSCRIPT_FRAMES: Final = [
    Seen("STOMP", {"accept-version": "1.1,1.2", "host": r"a\cb"}, b"", "ignored"),
    Seen("SUBSCRIBE", {"id": "a:b", "destination": "/topic/a", "ack": "client-individual"}, b"", "1"),
    Seen("SEND", {"destination": "/topic/a", "content-length": "3"}, b"\0\n\0"),
    Seen("ACK", {"id": "1-1"}),
    Seen("ACK", {"id": "1-2"}),
    Seen("ACK", {"id": "1-3"}),
    Seen("DISCONNECT", {}, b"", "2"),
]


def test_a_whole_session_says_the_same_wherever_it_is_cut() -> None:
    for chunks in cuts(TRANSCRIPT):
        assert outcome(connection(), chunks) == Outcome(TRANSCRIPT_FRAMES), chunks


@pytest.mark.parametrize("command", [b"ACK", b"NACK"])
def test_bare_answers_of_1_2_come_as_one_object(command: bytes) -> None:
    frames = reader(V1_2).receive(b"%b\nid:1-1\n\n\0" % command * 40)

    assert [type(frame) for frame in frames] == [AnswerRun]
    assert frames[0].command == command.decode()
    assert len(list(flattened(frames))) == 40


def test_after_bare_answers_their_line_ends_are_searched_for_first() -> None:
    """Otherwise the rest of the chunk would be searched for other ones at each: 5 s for 256 KiB of ACKs and NACKs in
    turn."""
    under_test = reader(V1_2)

    outcome(under_test, [b"BEGIN\r\ntransaction:t\r\n\r\n\0" + b"ACK\nid:1-1\n\n\0NACK\nid:1-1\n\n\0" * 2])

    assert under_test._separator == LF_SEPARATOR


def test_answers_in_turn_come_in_few_calls() -> None:
    """A client that refuses every tenth in its place."""
    in_turn = b"ACK\nid:1-1\n\n\0" * 9 + b"NACK\nid:1-1\n\n\0"
    under_test = reader(V1_2)

    calls = [under_test.receive(in_turn * 50)]
    while under_test.has_more:
        calls.append(under_test.receive(b""))

    assert sum(len(list(flattened(frames))) for frames in calls) == 500
    assert len(calls) == 2


def test_messages_with_one_head_come_as_one_object() -> None:
    frames = reader(V1_2).receive(b"SEND\ndestination:/topic/a\ncontent-length:1\n\nx\0" * 40)

    assert [type(frame) for frame in frames] == [SendRun]
    assert len(list(flattened(frames))) == 40


@pytest.mark.parametrize("between", [b"", b"\n"])
@pytest.mark.parametrize("other", [b"SEND\ndestination:/topic/b\ncontent-length:1\n\ny\0", b"\n", b""])
def test_a_run_ends_at_the_first_frame_that_is_not_alike(other: bytes, between: bytes) -> None:
    frame = b"SEND\ndestination:/topic/a\ncontent-length:1\n\n%c\0" + between
    for count in range(1, 40):
        bodies = [b"%c" % number for number in range(count)]
        stream = b"".join(frame % body for body in bodies) + other + frame % b"z" * 40

        frames = reader(V1_2).receive(stream[: -len(between) - 1])

        found = [body for frame in frames if isinstance(frame, SendRun) for body in frame.bodies]
        assert found == [*bodies, *[b"y"] * (b"y" in other), *[b"z"] * 39]


def test_frames_that_are_alike_are_found_without_looking_at_each() -> None:
    chunk = b"SEND\ndestination:/topic/a\ncontent-length:1\n\nx\0" * 500
    under_test = reader(V1_2)

    assert operations(lambda: under_test.receive(chunk)) < 60


def test_messages_to_different_places_may_pass_each_other_and_nothing_else() -> None:
    under_test = reader(V1_2)
    a, b, other_a = (
        b"SEND\ndestination:/topic/%b\ncontent-length:1%b\n\n" % (name, more)
        for name, more in ((b"a", b""), (b"b", b""), (b"a", b"\nx:y"))
    )
    for start in (a, b, other_a) * 3:
        for frame in under_test.receive(start + b"0\0"):
            frame.head.place = frame.headers["destination"]
    stream = [a + b"1", b + b"2", a + b"3", b"ACK\nid:1-1\n\n", a + b"4", other_a + b"5", b + b"6", a + b"7", b + b"8"]
    stream += [a + b"9", a + b"\xff", b.replace(b"/b", b"/b\nreceipt:r") + b"x", a + b"y", a + b"z"]

    frames = under_test.receive(b"".join(start + b"\0" for start in stream))

    bodies = [frame.bodies if isinstance(frame, SendRun) else frame.command for frame in frames]
    assert bodies == [
        *([b"1", b"3"], [b"2"], "ACK"),
        *([b"4"], [b"5"], [b"6", b"8"], [b"7", b"9", b"\xff"]),
        *([b"x"], [b"y", b"z"]),
    ]


def test_a_receipt_joins_no_run_that_has_passed_others() -> None:
    """It says that everything before it has been taken, too."""
    under_test = reader(V1_2)
    a, b = (b"SEND\ndestination:/topic/%b\ncontent-length:1\n\n" % name for name in (b"a", b"b"))
    for start in (a, b) * 3:
        for frame in under_test.receive(start + b"0\0"):
            frame.head.place = frame.headers["destination"]
    stream = a + b"1\0" + b + b"2\0" + a + b"3\0" + a.replace(b"/a", b"/a\nreceipt:r") + b"4\0"

    frames = under_test.receive(stream)

    assert [frame.bodies for frame in frames if isinstance(frame, SendRun)] == [[b"1", b"3"], [b"2"], [b"4"]]
    assert [frame.receipt for frame in frames] == [None, None, "r"]


def test_one_that_asks_for_two_receipts_takes_none_from_others() -> None:
    under_test = reader(V1_2)
    for _ in range(3):
        (frame,) = under_test.receive(b"SEND\nreceipt:1\nreceipt:2\n\n\0")
        assert frame.receipt == "1"

    (frame,) = under_test.receive(b"SEND\nreceipt:2\n\n\0")

    assert frame.receipt == "2"


def test_a_mistake_in_a_run_of_messages_leaves_those_before_it() -> None:
    good, bad = b"SEND\ncontent-length:1\n\nx\0", b"SEND\ncontent-length:1\n\nxx\0"

    for chunks in cuts(good * 4 + bad + good):
        assert read_stream(chunks, V1_2) == Outcome(
            [Seen("SEND", {"content-length": "1"}, b"x")] * 4, "body does not end where its content-length says"
        )


@pytest.mark.parametrize("version", [None, V1_0, V1_1])
def test_only_1_2_has_runs_of_acks(version: Version | None) -> None:
    frames = reader(version).receive(b"ACK\nid:1-1\n\n\0" * 3)

    assert [type(frame) is AnswerRun for frame in frames] == [False] * 3


@pytest.mark.parametrize("count", [MAX_FRAMES_PER_CALL - 1, MAX_FRAMES_PER_CALL, MAX_FRAMES_PER_CALL + 1, 2000])
@pytest.mark.parametrize(
    "frame",
    [
        b"BEGIN\ntransaction:t\n\n\0",
        b"ACK\nid:1-1\n\n\0\n",
        b"NACK\nid:1-1\n\n\0\n",
        b"SEND\n\n\0",
        b"SEND\ncontent-length:1\n\n\0\0\n",
    ],
    ids=["BEGIN", "ACK", "NACK", "SEND", "SEND with content-length"],
)
def test_a_long_stream_comes_in_batches_and_whole(frame: bytes, count: int) -> None:
    assert len(read_stream([frame * count], V1_2).frames) == count


@pytest.mark.parametrize(
    ("frame", "bound"),
    [
        pytest.param(b"BEGIN\ntransaction:t\n\n\0", MAX_FRAMES_PER_CALL // 8, id="BEGIN"),
        pytest.param(b"SEND\n\n\0", MAX_FRAMES_PER_CALL, id="SEND"),
        pytest.param(b"SEND\nreceipt:r\n\n\0", MAX_FRAMES_PER_CALL, id="SEND with receipt"),
        pytest.param(b"SEND\ncontent-length:0\n\n\0", MAX_FRAMES_PER_CALL, id="SEND with content-length"),
    ],
)
def test_a_call_returns_a_bounded_number_of_frames(frame: bytes, bound: int) -> None:
    """Frames that are not SENDs take longer to apply, and count as eight."""
    under_test = reader(V1_2)

    frames = under_test.receive(frame * (bound + 1))

    assert len(list(one_by_one(frames))) == bound
    assert under_test.has_more


@pytest.mark.parametrize("lines", [b"\n" * 2**20, b"\r\n" * 2**19, b"\n\r\n\n" * 2**18], ids=["LF", "CR LF", "both"])
@pytest.mark.parametrize("frame", [b"", b"SEND\n\n\0", b"SEND\ncontent-length:0\n\n\0"], ids=["alone", "SEND", "run"])
def test_a_mebibyte_of_empty_lines_costs_few_operations(lines: bytes, frame: bytes) -> None:
    under_test = reader(V1_2)
    received: list[Frame] = []

    work = operations(lambda: received.extend(under_test.receive(frame + lines + frame)))

    assert work < 60
    assert len(list(one_by_one(received))) == 2 * bool(frame)
    assert under_test.pending_bytes == 0


@pytest.mark.parametrize(
    ("start", "usual", "last"),
    [
        (b"receipt:%b\n", b"m\\c", b"m"),
        (b"receipt:%b\n", "ä".encode(), b"m"),
        (b"receipt:%b\r\n", b"m", b"m"),
        (b"receipt:%b\nreceipt:again\n", b"m", b"m"),
        (b"receipt:%b\n", b"m", b"\\c"),
        (b"receipt:%b\n", b"m", b"\\t"),
        (b"receipt:%b\n", b"m", b"\xff"),
        (b"receipt:%b\n", b"m", b"m" * 33_000),
    ],
    ids=["escaped", "not ASCII", "CR LF", "repeated", "one escaped", "one malformed", "one not UTF-8", "one too long"],
)
def test_sends_with_receipts_of_any_kind_cost_few_operations_each(start: bytes, usual: bytes, last: bytes) -> None:
    def frame(receipt: bytes) -> bytes:
        return b"SEND\ndestination:/topic/a\ncontent-length:1\n" + start % receipt + b"\nx\0"

    count = MAX_FRAMES_PER_CALL - 1
    under_test = reader(V1_2)
    under_test.receive(frame(usual) * 3)
    received: list[Frame] = []
    stream = b"".join(frame(b"%b%d" % (usual, number)) for number in range(count)) + frame(last)

    work = operations(lambda: received.extend(under_test.receive(stream)))

    assert work < 40 * MAX_FRAMES_PER_CALL
    expected = read_stream([frame(b"%b%d" % (usual, number)) for number in range(count)] + [frame(last)], V1_2)
    assert list(flattened(received)) == expected.frames
    assert len(expected.frames) == count + (expected.violation is None)


def test_equal_header_blocks_share_one_head_whatever_their_receipts() -> None:
    stream = b"".join(b"SEND\ndestination:/topic/a\nreceipt:%d\n\n\0" % number for number in range(4))

    frames = list(one_by_one(reader(V1_2).receive(stream)))

    assert frames[2].head is frames[3].head
    assert [frame.receipt for frame in frames] == ["0", "1", "2", "3"]


def test_what_was_remembered_is_forgotten_when_the_version_is_known() -> None:
    under_test = reader()
    frame = b"SEND\nx:a\\cb\n\n\0"
    before = outcome(under_test, [frame * 3])

    under_test.version = V1_2

    assert {seen.headers["x"] for seen in before.frames} == {r"a\cb"}
    assert outcome(under_test, [frame]) == Outcome([Seen("SEND", {"x": "a:b"})])


def test_the_memory_of_headers_stays_consistent_when_line_ends_alternate() -> None:
    under_test = reader(V1_2)
    crlf, lf = b"SEND\r\ndestination:/topic/a\r\n\r\n\0", b"SEND\ndestination:/topic/a\n\n\0"

    for frame in (crlf, crlf, lf, lf, crlf, lf, crlf, lf, crlf, lf):
        outcome(under_test, [frame])

        under_test._memo.check_invariants()


def receive_all(under_test: FrameReader, chunks: list[bytes]) -> None:
    for chunk in chunks:
        under_test.receive(chunk)


@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\ndestination:/topic/a\nreceipt:r\n\n" + b"x" * 9 + b"\0",
        b"SEND\ndestination:/topic/a\nreceipt:r\ncontent-length:9\n\n" + b"x" * 9 + b"\0",
        b"SEND\ndestination:/topic/a\nreceipt:r\ncontent-length:1\n\nxx\0",
        b"SEND\ndestination:/topic/a\nreceipt:r\nno colon\n\n\0",
    ],
    ids=["body too large", "announced body too large", "wrong content-length", "malformed header"],
)
def test_a_violation_knows_the_receipt_wherever_the_frame_is_cut(frame: bytes) -> None:
    for chunks in cuts(frame):
        under_test = reader(V1_2, Limits(max_body_bytes=8))
        with pytest.raises(PeerViolation) as caught:
            receive_all(under_test, chunks)

        assert caught.value.receipt == "r", chunks


@pytest.mark.parametrize("times", [0, 3], ids=["unknown", "known"])
def test_so_does_that_of_a_number_whether_its_headers_are_known_or_not(times: int) -> None:
    start = b"SEND\ndestination:/topic/a\nreceipt:r\nproducer-seq:"
    under_test = reader(V1_2)
    under_test.receive((start + b"1\n\n\0") * times)

    with pytest.raises(PeerViolation) as caught:
        under_test.receive(start + b"\\t\n\n\0")

    assert caught.value.receipt == "r"


def test_numbered_sends_share_a_head_and_keep_their_numbers() -> None:
    numbered = [b"SEND\nproducer-seq:%d\nreceipt:r%d\nd:/topic/a\n\nx\0" % (number, number) for number in range(1, 6)]
    found = reader(Version.V1_2).receive(b"".join(numbered))

    runs = [frame for frame in found if isinstance(frame, SendRun)]
    assert [sequence for run in runs for sequence in run.sequences] == ["1", "2", "3", "4", "5"]
    assert [receipt for run in runs for receipt in run.receipts] == ["r1", "r2", "r3", "r4", "r5"]
    assert len(runs) <= 3, "the first two are parsed, the others are known"


def test_numbered_sends_that_repeat_byte_for_byte_keep_one_number_each() -> None:
    (*_, last) = reader(Version.V1_2).receive(b"SEND\nproducer-seq:7\ncontent-length:1\n\nx\0" * 9)

    assert isinstance(last, SendRun)
    assert last.sequences == ["7"] * len(last.bodies)


_RECEIPTS = st.sampled_from([b"r1", b"r22", b"", b" r ", b"m\\c", b"m\\t", "ä".encode(), b"\xff", b"x" * 150])
_NUMBERS = st.sampled_from([b"1", b"2", b"10", b"", b"9" * 30, b"a\\c", b"\\t", b"\xfe"])
_LINES = st.one_of(
    _RECEIPTS.map(lambda value: b"receipt:" + value),
    _NUMBERS.map(lambda value: b"producer-seq:" + value),
    st.sampled_from([b"producer:p", b"a:1", b"receipt", b"producer-seq-not:1"]),
)
_LIKE_HEADERS: Final = b"receipt:x\nproducer-seq:3\n\ny"


@st.composite
def _numbered_sends(draw: st.DrawFn) -> list[bytes]:
    """Frames alike but for some values, and now and then another among them."""
    shape = draw(st.lists(st.sampled_from([b"receipt", b"producer-seq", b"a"]), max_size=3))
    length = draw(st.sampled_from([0, 1, len(_LIKE_HEADERS)]))
    line_end = draw(st.sampled_from([b"\n", b"\n", b"\r\n"]))
    frames = []
    for _ in range(draw(st.integers(1, 8))):
        values = {b"receipt": draw(_RECEIPTS), b"producer-seq": draw(_NUMBERS), b"a": b"1"}
        lines = [name + b":" + values[name] for name in shape]
        if draw(st.integers(0, 9)) == 0:
            lines.insert(draw(st.integers(0, len(lines))), draw(_LINES))
        lines += [b"destination:/topic/a", b"content-length:%d" % length]
        body = draw(st.sampled_from([_LIKE_HEADERS[:length], _LIKE_HEADERS[:length][::-1]]))
        between = draw(st.sampled_from([b"", b"", b"\n"]))
        frames.append(
            b"SEND" + line_end + b"".join(line + line_end for line in lines) + line_end + body + b"\0" + between
        )
    return frames


@given(frames=_numbered_sends(), head_bytes=st.sampled_from([100, 200, 1000]))
def test_receipts_and_numbers_of_frames_that_come_together_are_those_of_each(
    frames: list[bytes], head_bytes: int
) -> None:
    limits = Limits(max_header_bytes=head_bytes)

    assert read_stream([b"".join(frames)], V1_2, limits) == read_stream(frames, V1_2, limits)


def test_numbered_sends_with_receipts_cost_few_operations_each() -> None:
    frame = b"SEND\nproducer-seq:%d\nproducer:p\nreceipt:r%d\nd:/topic/a\ncontent-length:1\n\nx\0"
    under_test = reader(V1_2)
    count = MAX_FRAMES_PER_CALL
    stream = b"".join(frame % (number, number) for number in range(count))
    under_test.receive(stream)

    work = operations(lambda: under_test.receive(stream))

    assert work < 2 * count
