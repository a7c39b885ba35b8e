"""The few STOMP 1.2 frames a load generator sends, as bytes.

Encoding only; where brokers differ, a `Dialect` gives the headers. Callers pass names and ids that need no escaping,
and bodies without NUL and line feed, so that the receiving side can count frames by their NULs and find headers by
their line starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.dialect import OURS, Dialect, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.address import Address
    from benchmarks.durable_identity import DurableIdentity

#: Digits of a receipt's number, and of a producer's, so that all frames have one size.
_DIGITS = 8

#: How the body of a poison message begins.
POISON: Final = b"poison "


def connect(address: Address, identity: DurableIdentity | None = None) -> bytes:
    return b"CONNECT\naccept-version:1.2\nhost:%b\nheart-beat:0,0\n%b\n\0" % (
        (address.dialect.virtual_host or address.host).encode(),
        _lines(address.dialect.of_connect(identity)),
    )


def subscribe(
    destination: str,
    *,
    ack_mode: str = "auto",
    identity: DurableIdentity | None = None,
    headers: Mapping[str, str] | None = None,
    receipt: str,
    dialect: Dialect = OURS,
) -> bytes:
    return b"SUBSCRIBE\nid:%b\ndestination:%b\nack:%b\nreceipt:%b\n%b%b\n\0" % (
        dialect.subscription_id(identity).encode(),
        destination.encode(),
        ack_mode.encode(),
        receipt.encode(),
        _lines(dialect.of_subscribe(identity, acknowledges=ack_mode != "auto")),
        _lines(tuple((headers or {}).items())),
    )


def subscribe_besides(destinations: Sequence[str]) -> bytes:
    """Further subscriptions of a connection, in mode `auto`, without receipts."""
    return b"".join(
        b"SUBSCRIBE\nid:%d\ndestination:%b\n\n\0" % (number, destination.encode())
        for number, destination in enumerate(destinations, start=1)
    )


def delete_subscription(identity: DurableIdentity, *, receipt: str, dialect: Dialect = OURS) -> bytes:
    """The UNSUBSCRIBE that deletes a durable subscription."""
    return b"UNSUBSCRIBE\nid:%b\nreceipt:%b\n%b\n\0" % (
        dialect.subscription_id(identity).encode(),
        receipt.encode(),
        _lines(dialect.of_unsubscribe(identity)),
    )


def send(destination: str, body: bytes, *, receipt: str | None = None, headers: Headers = ()) -> bytes:
    return b"SEND\ndestination:%b\ncontent-length:%d\n%b%b\n%b\0" % (
        destination.encode(),
        len(body),
        b"" if receipt is None else b"receipt:%b\n" % receipt.encode(),
        _lines(headers),
        body,
    )


def _numbered(producer: str, number: int) -> Headers:
    return ("producer", producer), ("producer-epoch", "1"), ("producer-seq", f"{number:0{_DIGITS}d}")


def disconnect(receipt: str) -> bytes:
    return b"DISCONNECT\nreceipt:%b\n\n\0" % receipt.encode()


def acknowledge_all(ack_ids: list[bytes]) -> bytes:
    """One ACK frame for each id, joined; ids stay escaped as they arrived."""
    return _answer_all(b"ACK", ack_ids)


def acknowledge(ack_id: bytes, *, receipt: str) -> bytes:
    return b"ACK\nid:%b\nreceipt:%b\n\n\0" % (ack_id, receipt.encode())


def refuse_all(ack_ids: list[bytes]) -> bytes:
    """The same with NACK frames."""
    return _answer_all(b"NACK", ack_ids)


def _lines(headers: Headers) -> bytes:
    return "".join(f"{name}:{value}\n" for name, value in headers).encode()


def _answer_all(command: bytes, ack_ids: list[bytes]) -> bytes:
    if not ack_ids:
        return b""
    begin, end = command + b"\nid:", b"\n\n\0"
    return begin + (end + begin).join(ack_ids) + end


@dataclass(frozen=True, slots=True)
class FrameRing:
    """SEND frames of one size, encoded once and sent repeatedly: byte n of the stream is `data[n % len(data)]`."""

    data: bytes
    frame_bytes: int

    def bytes_to_boundary(self, position: int) -> int:
        """Bytes left of the frame at stream position `position`; 0 between two frames."""
        return -position % self.frame_bytes


def ring_of_sends(
    destination: str,
    *,
    body_bytes: int,
    frames: int,
    with_receipts: bool,
    poison_at: int | None = None,
    producer: str | None = None,
    headers: Headers = (),
) -> FrameRing:
    """`frames` equal SENDs, one of which may be poison; with receipts each has its own id, which repeats after one
    round. If there is a producer, it has numbered them: one round is all that may be sent."""
    body, poison = b"x" * body_bytes, POISON.ljust(body_bytes, b"x")
    encoded = [
        send(
            destination,
            poison if number == poison_at else body,
            receipt=f"{number:0{_DIGITS}d}" if with_receipts else None,
            headers=headers if producer is None else (*headers, *_numbered(producer, number + 1)),
        )
        for number in range(frames)
    ]
    return FrameRing(data=b"".join(encoded), frame_bytes=len(encoded[0]))
