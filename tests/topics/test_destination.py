"""What clients write after `destination:` and which topic they mean by it."""

from __future__ import annotations

import pytest

from stompbroker.errors import InvalidDestination
from stompbroker.topics import parse_pattern, parse_topic_name


@pytest.mark.parametrize(
    "spelling", ["/topic/a.b", "/topic/a/b", "a/b/", "a.b", "/a/b", "..a..b..", "/topic//a//b", "/topic/.a/b."]
)
def test_spellings_of_one_topic(spelling: str) -> None:
    assert parse_topic_name(spelling).name == "a.b"


def test_only_a_leading_topic_prefix_is_one() -> None:
    assert parse_topic_name("topic/a").name == "topic.a"
    assert parse_topic_name("/topic/topic/a").name == "topic.a"
    assert parse_topic_name("/topics/a").name == "topics.a"


@pytest.mark.parametrize("prefix", ["queue", "temp-queue", "temp-topic", "reply-queue", "exchange", "amq"])
def test_destinations_of_other_kinds_are_not_yet_supported(prefix: str) -> None:
    for destination in (f"/{prefix}/a", f"/{prefix}/", f"/{prefix}"):
        with pytest.raises(InvalidDestination, match="not supported yet"):
            parse_pattern(destination)
    # A word that merely begins like one, or stands elsewhere, is an ordinary name.
    assert parse_topic_name(f"/{prefix}s/a").name == f"{prefix}s.a"
    assert parse_topic_name(f"/topic/{prefix}/a").name == f"{prefix}.a"


def test_the_address_of_a_durable_subscription_is_no_topic() -> None:
    for destination in ("/dsub/a", "/dsub/", "/dsub"):
        with pytest.raises(InvalidDestination, match="means a durable subscription"):
            parse_pattern(destination)
    assert parse_topic_name("/dsubs/a").name == "dsubs.a"


@pytest.mark.parametrize("pattern", ["a.*", "*", "a.**.b", "#", "a.>", "/topic/>.a"])
def test_nothing_is_sent_to_a_pattern(pattern: str) -> None:
    assert not parse_pattern(pattern).is_exact
    with pytest.raises(InvalidDestination, match="is a pattern"):
        parse_topic_name(pattern)


@pytest.mark.parametrize("name", ["a.b*", "a.*b", "**a", "a#", ">>", "***"])
def test_a_wildcard_that_is_not_alone_in_its_segment_is_an_ordinary_character(name: str) -> None:
    assert parse_topic_name(name).name == name


def test_all_spellings_of_any_number_are_one() -> None:
    assert parse_pattern("a.#") == parse_pattern("a.>") == parse_pattern("a/**")


def test_neighbouring_wildcards_have_one_spelling() -> None:
    assert parse_pattern("a.>.>.b") == parse_pattern("a.>.b")
    assert parse_pattern("a.>.*.#.*") == parse_pattern("a.*.*.>")


def test_a_pattern_holds_four_separate_wildcards_for_any_number_at_most() -> None:
    assert parse_pattern(">.a.>.b.>.c.>").segments.count(">") == 4
    with pytest.raises(InvalidDestination, match="4 separate wildcards"):
        parse_pattern(">.a.>.b.>.c.>.d.>")


@pytest.mark.parametrize("empty", ["", "/", "/topic/", "...", "/topic/./"])
def test_a_name_without_segments_names_nothing(empty: str) -> None:
    with pytest.raises(InvalidDestination, match="names no topic"):
        parse_pattern(empty)


def test_the_longest_name_has_255_bytes() -> None:
    assert parse_topic_name("ä" * 127 + "x").name == "ä" * 127 + "x"
    with pytest.raises(InvalidDestination, match="255 bytes; this one has 256"):
        parse_topic_name("ä" * 128)


def test_a_name_has_32_segments_at_most() -> None:
    assert len(parse_topic_name(".".join("a" * 32)).segments) == 32
    with pytest.raises(InvalidDestination, match="32 segments; this one has 33"):
        parse_topic_name(".".join("a" * 33))


def test_a_name_holds_no_nul() -> None:
    with pytest.raises(InvalidDestination, match="NUL"):
        parse_topic_name("a\0b")
