"""The generator's own bytes: what it sends is STOMP, and all frames of a ring have one size."""

from __future__ import annotations

import pytest

from benchmarks import frames


def test_a_send_is_written_as_the_specification_says() -> None:
    assert frames.send("/topic/a", b"xyz") == b"SEND\ndestination:/topic/a\ncontent-length:3\n\nxyz\0"
    assert frames.send("/topic/a", b"", receipt="r") == (
        b"SEND\ndestination:/topic/a\ncontent-length:0\nreceipt:r\n\n\0"
    )


def test_acknowledgements_are_whole_frames_joined() -> None:
    assert frames.acknowledge_all([b"1", b"a\\cb"]) == b"ACK\nid:1\n\n\0ACK\nid:a\\cb\n\n\0"
    assert frames.acknowledge_all([]) == b""


def test_refusals_are_whole_frames_joined() -> None:
    assert frames.refuse_all([b"1", b"2"]) == b"NACK\nid:1\n\n\0NACK\nid:2\n\n\0"
    assert frames.refuse_all([]) == b""


def test_an_acknowledgement_can_ask_for_a_receipt() -> None:
    assert frames.acknowledge(b"1", receipt="r") == b"ACK\nid:1\nreceipt:r\n\n\0"


def test_a_subscriber_can_ask_for_a_policy_of_its_own() -> None:
    frame = frames.subscribe("/topic/a", headers={"max-attempts": "3"}, receipt="r")

    assert frame == b"SUBSCRIBE\nid:0\ndestination:/topic/a\nack:auto\nreceipt:r\nmax-attempts:3\n\n\0"


def test_one_frame_of_a_ring_can_be_poison_and_has_the_size_of_the_others() -> None:
    ring = frames.ring_of_sends("/topic/a", body_bytes=10, frames=5, with_receipts=True, poison_at=2)

    encoded = ring.data.split(b"\0")[:-1]
    assert {len(frame) + 1 for frame in encoded} == {ring.frame_bytes}
    assert [b"\n\n" + frames.POISON in frame for frame in encoded] == [False, False, True, False, False]


def test_a_producer_numbers_the_frames_of_a_ring_from_1_on() -> None:
    ring = frames.ring_of_sends("/topic/a", body_bytes=10, frames=11, with_receipts=True, producer="p")

    encoded = ring.data.split(b"\0")[:-1]
    assert {len(frame) + 1 for frame in encoded} == {ring.frame_bytes}
    assert [int(frame.partition(b"producer-seq:")[2].split()[0]) for frame in encoded] == list(range(1, 12))
    assert all(b"producer:p\nproducer-epoch:1\n" in frame for frame in encoded)


@pytest.mark.parametrize("with_receipts", [False, True])
def test_all_frames_of_a_ring_have_one_size(with_receipts: bool) -> None:
    ring = frames.ring_of_sends("/topic/a", body_bytes=10, frames=1000, with_receipts=with_receipts)

    encoded = [frame + b"\0" for frame in ring.data.split(b"\0")[:-1]]
    assert {len(frame) for frame in encoded} == {ring.frame_bytes}
    assert len(encoded) == 1000
    assert len(set(encoded)) == (1000 if with_receipts else 1)


def test_a_position_knows_how_far_it_is_to_the_next_frame() -> None:
    ring = frames.FrameRing(data=b"x" * 20, frame_bytes=10)

    assert [ring.bytes_to_boundary(position) for position in (0, 1, 9, 10, 11, 40)] == [0, 9, 1, 0, 9, 0]
