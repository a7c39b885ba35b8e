"""What a subscriber answers must not depend on where the stream is cut into buffers: it is cut at every place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.answering import AcknowledgeAll, NoticePoison, RefuseAll
from benchmarks.frames import POISON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.answering import Answering


def message(number: int, body: bytes, *, is_redelivery: bool = False) -> bytes:
    redelivered = b"true" if is_redelivery else b"false"
    return b"MESSAGE\nsubscription:0\nredelivered:%b\nack:1-%d\nmessage-id:m\n\n%b\0" % (redelivered, number, body)


STREAM: Final = b"".join(
    [message(1, b"xx"), message(2, POISON + b"x"), message(3, b"x" + POISON), message(4, POISON, is_redelivery=True)]
)


def cuts(stream: bytes) -> Iterator[list[bytes]]:
    """The stream whole, byte by byte, and in two pieces at every place."""
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    for at in range(1, len(stream)):
        yield [stream[:at], stream[at:]]


def answers(answering: Answering, pieces: list[bytes]) -> tuple[int, list[str]]:
    """Messages that were answered, and the answers as `ACK 1-2`, sorted."""
    given = [answering.answer(piece) for piece in pieces]
    frames = b"".join(answer.frames for answer in given).decode()
    assert frames.endswith("\n\n\0")
    words = [frame.removesuffix("\n\n").replace("\nid:", " ") for frame in frames.split("\0")[:-1]]
    return sum(answer.messages for answer in given), sorted(words)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (AcknowledgeAll, ["ACK 1-1", "ACK 1-2", "ACK 1-3", "ACK 1-4"]),
        (RefuseAll, ["NACK 1-1", "NACK 1-2", "NACK 1-3", "NACK 1-4"]),
        (lambda: NoticePoison(refuses=False), ["ACK 1-1", "ACK 1-2", "ACK 1-3", "ACK 1-4"]),
        (lambda: NoticePoison(refuses=True), ["ACK 1-1", "ACK 1-3", "NACK 1-2", "NACK 1-4"]),
    ],
    ids=["acknowledges", "refuses", "takes poison", "refuses poison"],
)
def test_every_message_is_answered_once_wherever_the_stream_is_cut(
    make: type[AcknowledgeAll], words: list[str]
) -> None:
    for pieces in cuts(STREAM):
        assert answers(make(), pieces) == (4, words)


@pytest.mark.parametrize("refuses", [False, True])
def test_poison_and_redeliveries_are_counted_and_a_body_that_only_contains_the_word_is_none(refuses: bool) -> None:
    for pieces in cuts(STREAM):
        noticing = NoticePoison(refuses=refuses)
        for piece in pieces:
            noticing.answer(piece)

        assert (noticing.poisoned, noticing.redelivered) == (2, 1)
