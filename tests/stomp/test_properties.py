"""What holds for any bytes, any headers and any order of events.

The examples are the same in every run (the profile of the tests' root), and their number is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stompbroker.errors import PeerViolation
from stompbroker.stomp import (
    Head,
    HeartBeats,
    Limits,
    Version,
    message_tail,
    render_frame,
    render_passed_through,
    render_receipts,
)
from stompbroker.stomp.connection import negotiate, parse_heart_beat
from stompbroker.stomp.frame import choose_version, escape, unescape
from stompbroker.stomp.heads import HeadMemo
from tests.stomp.reading import Outcome, Seen, connection, flattened, one_by_one, outcome, read_stream, reader

if TYPE_CHECKING:
    from collections.abc import Sequence

bounded = settings(max_examples=150, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])

VERSIONS: Final = st.sampled_from(list(Version))
VERSIONS_OR_NONE: Final = st.sampled_from([None, *Version])

#: Text with what matters to the protocol in it more often than chance would have it.
TEXT: Final = st.text(st.one_of(st.sampled_from("\r\n:\\ \tncr\0"), st.characters(codec="utf-8")), max_size=12)
NAMES: Final = TEXT.filter(lambda name: name not in ("", "receipt", "content-length"))
BODIES: Final = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from([b"\0", b"\n", b"a\n\n\0"])).map(b"".join))


@st.composite
def cut_streams(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> list[bytes]:
    """A stream cut into chunks at any places."""
    stream = draw(streams)
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[start:stop] for start, stop in zip([0, *places], [*places, len(stream)], strict=True)]


#: Pieces that frames are made of, right and wrong, to be put together in any order.
PIECES: Final = st.sampled_from(
    [
        b"SEND\ndestination:/topic/a\n",
        b"SEND\r\ndestination:/topic/a\r\n",
        b"BEGIN\ntransaction:t\n",
        b"MESSAGE\nmessage-id:1\n",
        b"CONNECT\naccept-version:1.2\n",
        b"DISCONNECT\n",
        b"ACK\nid:1-1\n\n\0",
        b"ACK\nid:1-2\n\n\0\n",
        b"ACK\nid:",
        b"receipt:r\n",
        b"receipt:r\r\n",
        b"producer-seq:1\n",
        b"producer-seq:2\r\n",
        b"content-length:2\n",
        b"SEND\ncontent-length:2\n\nab\0",
        b"SEND\ncontent-length:2\n\n\0\0\0\n",
        b"content-length:0\n",
        b"x:\\c\\n\\\\\n",
        b"x:\\r\n",
        b"x: y \n",
        b"x\n",
        b":\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\n\0",
        b"\xc3\xa4",
        b"\xff",
        b"ab",
    ]
)
#: Mostly frames: a head, an empty line, a body and a NUL.
FRAMES: Final = st.builds(
    lambda head, lines, body, after: head + b"".join(lines) + b"\n" + body + b"\0" + after,
    st.sampled_from(
        [
            b"SEND\ndestination:/topic/a\n",
            b"SEND\ncontent-length:4\n",
            b"SEND\nd:e\r\n",
            b"ACK\nid:1-1\n",
            b"BEGIN\ntransaction:t\n",
        ]
    ),
    st.lists(
        st.sampled_from(
            [
                b"receipt:r\n",
                b"receipt:s\n",
                b"producer-seq:1\n",
                b"producer-seq:2\n",
                b"x:y\n",
                b"x:\\c\n",
                b"long:" + b"z" * 60 + b"\n",
            ]
        )
    ),
    st.sampled_from([b"", b"body", b"\nbody", b"\r\n\r\n", b"a\n\nb"]),
    st.sampled_from([b"", b"\n", b"\n\n", b"\r\n"]),
)
TURNS: Final = st.lists(st.sampled_from([True, True, True, False]), max_size=12)
STREAMS: Final = st.one_of(
    st.lists(PIECES, max_size=30).map(b"".join),
    st.lists(FRAMES, max_size=12).map(b"".join),
    # Frames that repeat, as a publisher's do, now and then with another in between.
    st.builds(lambda one, other, turns: b"".join(one if turn else other for turn in turns), FRAMES, FRAMES, TURNS),
    st.lists(st.one_of(FRAMES, PIECES), max_size=16).map(b"".join),
    st.binary(max_size=80),
)


@bounded
@given(chunks=cut_streams(STREAMS), version=VERSIONS_OR_NONE)
def test_any_cut_gives_the_same_frames(chunks: list[bytes], version: Version | None) -> None:
    assert read_stream(chunks, version) == read_stream([b"".join(chunks)], version)


@bounded
@given(chunks=cut_streams(STREAMS), version=VERSIONS)
def test_any_cut_gives_the_same_session(chunks: list[bytes], version: Version) -> None:
    connect = f"CONNECT\naccept-version:{version.value}\n\n\0".encode()

    assert outcome(connection(), [connect, *chunks]) == outcome(connection(), [connect + b"".join(chunks)])


SMALL: Final = Limits(max_header_count=6, max_header_bytes=80, max_body_bytes=40)


@bounded
@given(chunks=cut_streams(STREAMS), version=VERSIONS_OR_NONE)
def test_garbage_gives_frames_or_a_violation_and_takes_bounded_memory(
    chunks: list[bytes], version: Version | None
) -> None:
    under_test = reader(version, SMALL)
    bound = SMALL.max_header_bytes + SMALL.max_body_bytes + len(b"\n\r\n\0")

    for chunk in chunks:
        seen = outcome(under_test, [chunk])

        for frame in seen.frames:
            assert len(frame.headers) <= SMALL.max_header_count
            assert len(frame.body) <= SMALL.max_body_bytes
        if seen.violation is not None:
            assert under_test.pending_bytes <= bound + len(chunk)
            return
        assert under_test.pending_bytes <= bound


@bounded
@given(chunks=cut_streams(st.one_of(STREAMS, st.just(b"\n" * 500), st.just(b"x" * 500), st.just(b"ACK\n\n" * 100))))
def test_garbage_before_connect_gives_a_violation_at_most(chunks: list[bytes]) -> None:
    under_test = connection(SMALL)

    seen = outcome(under_test, chunks)

    assert all(frame.command in ("CONNECT", "STOMP", "DISCONNECT") for frame in seen.frames[:1])
    assert under_test.pending_bytes <= SMALL.max_header_bytes + SMALL.max_body_bytes + 4 + max(map(len, chunks))


# Rendering ------------------------------------------------------------------------------------------------------------


def as_read(name: str, value: str, version: Version) -> tuple[str, str]:
    """What a header becomes on its way out and back in. 1.0 has no escapes, and trims: there a line feed, and a colon
    in a name, stay two characters."""
    if version is not Version.V1_0:
        return name, value
    # A CR that ends the line goes with the blanks.
    return name.replace("\n", r"\n").replace(":", r"\c"), value.replace("\n", r"\n").strip(" \t\r")


def first_wins(headers: Sequence[tuple[str, str]], version: Version) -> dict[str, str]:
    expected: dict[str, str] = {}
    for name, value in headers:
        shown, meant = as_read(name, value, version)
        expected.setdefault(shown, meant)
    return expected


@bounded
@given(headers=st.lists(st.tuples(NAMES, TEXT), max_size=6), body=BODIES, version=VERSIONS)
@example(headers=[("a", "b\r"), ("c\r", "\r")], body=b"\n", version=Version.V1_1)
@example(headers=[("a", "\\"), ("\\n", "\\c")], body=b"", version=Version.V1_2)
def test_what_is_rendered_is_read_back(headers: list[tuple[str, str]], body: bytes, version: Version) -> None:
    expected = first_wins(headers, version)
    if body:
        expected["content-length"] = str(len(body))

    sent = render_frame("MESSAGE", headers, body, version)

    assert read_stream([sent], version) == Outcome([Seen("MESSAGE", expected, body)])


@bounded
@given(receipts=st.lists(TEXT, min_size=1, max_size=5), version=VERSIONS)
def test_receipts_are_read_back(receipts: list[str], version: Version) -> None:
    sent = render_receipts(receipts, version)

    assert read_stream([sent], version) == Outcome(
        [Seen("RECEIPT", dict([as_read("receipt-id", receipt, version)])) for receipt in receipts]
    )


@bounded
@given(headers=st.dictionaries(NAMES, TEXT, max_size=6), body=BODIES, version=VERSIONS)
def test_what_a_message_passes_through_is_read_back(headers: dict[str, str], body: bytes, version: Version) -> None:
    own = {"transaction", "report", "mandatory", "returned", "message-id", "subscription", "ack", "redelivered"}
    own |= {"delivery-count"}
    passed = [(name, value) for name, value in headers.items() if name not in own]

    sent = b"MESSAGE\n" + message_tail(b"m-1", render_passed_through(headers, version), body)

    expected = {"message-id": "m-1", "content-length": str(len(body))} | first_wins(passed, version)
    assert read_stream([sent], version) == Outcome([Seen("MESSAGE", expected, body)])


@bounded
@given(headers=st.lists(st.tuples(NAMES, TEXT), max_size=4), version=VERSIONS_OR_NONE)
def test_connected_is_one_frame_whatever_its_values(headers: list[tuple[str, str]], version: Version | None) -> None:
    named = [(f"h{index}", value.replace("\r", "")) for index, (_, value) in enumerate(headers)]

    seen = read_stream([render_frame("CONNECTED", named)], version)

    shown = {name: value.replace("\n", " ").replace("\0", " ") for name, value in named}
    assert seen == Outcome([Seen("CONNECTED", shown)])


@bounded
@given(text=TEXT, version=st.sampled_from([Version.V1_1, Version.V1_2]))
def test_unescape_undoes_escape(text: str, version: Version) -> None:
    escaped = escape(text, version)

    assert unescape(escaped, version) == text
    assert "\n" not in escaped
    assert ":" not in escaped
    if version is Version.V1_2:
        assert "\r" not in escaped


@bounded
@given(text=st.text("\\ncr:x", max_size=12), version=VERSIONS)
def test_what_can_be_unescaped_is_escaped_the_same_way_again(text: str, version: Version) -> None:
    try:
        meant = unescape(text, version)
    except PeerViolation:
        known = {Version.V1_1: r"[^\\]|\\[nc\\]", Version.V1_2: r"[^\\]|\\[rnc\\]"}[version]
        assert not re.fullmatch(f"({known})*", text)
        return

    if version is Version.V1_0:
        assert meant == text
    else:
        # A raw colon is accepted, but never written.
        assert escape(meant, version) == text.replace(":", r"\c")


# Negotiation ----------------------------------------------------------------------------------------------------------

MILLISECONDS: Final = st.one_of(st.sampled_from([0, 1, 100, 1000]), st.integers(0, 10**10 - 1))


@bounded
@given(client=st.tuples(MILLISECONDS, MILLISECONDS), server=st.tuples(MILLISECONDS, MILLISECONDS))
def test_heart_beats_are_agreed_on_per_direction(client: tuple[int, int], server: tuple[int, int]) -> None:
    agreed = negotiate(client, server)

    for interval, can, wants in (
        (agreed.from_client_ms, client[0], server[1]),
        (agreed.to_client_ms, server[0], client[1]),
    ):
        assert interval == (0 if 0 in (can, wants) else max(can, wants))
    swapped = negotiate(server, client)
    assert swapped == HeartBeats(agreed.to_client_ms, agreed.from_client_ms)


@bounded
@given(numbers=st.tuples(MILLISECONDS, MILLISECONDS), blanks=st.sampled_from(["", " ", "\t"]))
def test_heart_beat_numbers_are_read_as_written(numbers: tuple[int, int], blanks: str) -> None:
    assert parse_heart_beat(f"{blanks}{numbers[0]}{blanks},{blanks}{numbers[1]}") == numbers


@bounded
@given(value=st.one_of(st.text(max_size=12), st.text("0123456789,-+. e", max_size=14)))
def test_any_heart_beat_value_is_two_numbers_or_a_violation(value: str) -> None:
    try:
        can, wants = parse_heart_beat(value)
    except PeerViolation:
        return

    assert value.count(",") == 1
    assert [int(part) for part in value.split(",")] == [can, wants]
    assert min(can, wants) >= 0


@bounded
@given(
    offered=st.lists(st.sampled_from(["1.0", "1.1", "1.2", "1.3", "2.0", "", "x"]), max_size=6),
    blanks=st.sampled_from(["", " ", "  "]),
)
def test_the_highest_version_offered_is_chosen(offered: list[str], blanks: str) -> None:
    common = sorted(set(offered) & {"1.0", "1.1", "1.2"})

    chosen = choose_version(f"{blanks},{blanks}".join(offered))

    assert (chosen.value if chosen else None) == (common[-1] if common else None)


# State ----------------------------------------------------------------------------------------------------------------


@bounded
@given(offers=st.lists(st.tuples(st.integers(0, 30), st.sampled_from([1, 40, 500, 3000, 9000, 20_000])), max_size=60))
def test_the_memo_keeps_its_bounds_and_never_mixes_blocks_up(offers: list[tuple[int, int]]) -> None:
    memo = HeadMemo()
    heads: dict[bytes, Head] = {}

    for number, size in offers:
        block = b"%d" % number + b"x" * size
        if block not in memo.known:
            memo.offer(block, heads.setdefault(block, Head("SEND", {}, -1)))
        memo.check_invariants()
        assert all(heads[known] is head for known, head in memo.known.items())

    memo.clear()
    memo.check_invariants()
    assert not memo.known


#: SENDs to three places, two of which have two heads each; some with a receipt or a number; and now and then a BEGIN.
PUBLISHED: Final = st.lists(
    st.tuples(
        st.sampled_from([*[b"a\n", b"b\n", b"c\n"] * 3, b"a\nx:y\n", b"b\nproducer-seq:1\n", b"\n"]),
        st.sampled_from([*[b""] * 5, b"receipt:r\n"]),
    ),
    min_size=20,
    max_size=40,
)


@bounded
@given(published=PUBLISHED)
def test_what_passes_another_frame_goes_elsewhere_and_is_plain_as_that(published: list[tuple[bytes, bytes]]) -> None:
    """A RECEIPT says that all frames before it have been taken, and a number may be refused."""
    under_test = reader(Version.V1_2)
    starts = [
        b"SEND\ncontent-length:2\ndestination:/topic/%b%b\n" % (where, receipt)
        if where != b"\n"
        else b"BEGIN\ntransaction:t\ncontent-length:2\n%b\n" % receipt
        for where, receipt in published
    ]
    for start in starts * 3:
        for frame in under_test.receive(start + b"00\0"):
            frame.head.place = frame.headers.get("destination")
    stream = b"".join(start + b"%02d\0" % number for number, start in enumerate(starts))

    frames = under_test.receive(stream)

    found = [(int(frame.body), frame) for frame in one_by_one(frames)]
    assert sorted(number for number, _ in found) == list(range(len(starts)))
    for place, (number, frame) in enumerate(found):
        for other_number, other in found[place + 1 :]:
            if other_number < number:  # it was passed
                assert frame.command == other.command == "SEND"
                assert frame.head.place != other.head.place
                assert (frame.receipt, frame.sequence, other.receipt, other.sequence) == (None,) * 4


@bounded
@given(count=st.integers(0, 1200), version=VERSIONS, step=st.integers(1, 5000))
def test_any_number_of_acks_comes_through_whatever_the_size_of_the_chunks(
    count: int, version: Version, step: int
) -> None:
    stream = b"".join(b"ACK\nid:1-%d\n\n\0" % number for number in range(count))
    under_test = reader(version)
    seen: list[Seen] = []

    for start in range(0, len(stream), step):
        seen += flattened(under_test.receive(stream[start : start + step]))
        while under_test.has_more:
            seen += flattened(under_test.receive(b""))

    assert [frame.headers["id"] for frame in seen] == [f"1-{number}" for number in range(count)]
