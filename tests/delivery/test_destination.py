"""What clients write after `destination:` and which topic they mean by it."""

from __future__ import annotations

import pytest

from stompbroker.delivery import DestinationKind, Pattern, parse_pattern, parse_shown_topic, parse_topic_name
from stompbroker.errors import InvalidDestination


@pytest.mark.parametrize(
    "spelling", ["/topic/a.b", "/topic/a/b", "a/b/", "a.b", "/a/b", "..a..b..", "/topic//a//b", "/topic/.a/b."]
)
def test_spellings_of_one_topic(spelling: str) -> None:
    assert parse_topic_name(spelling).name == "a.b"


def test_what_follows_the_prefix_is_a_name_whatever_it_looks_like() -> None:
    assert parse_topic_name("/topic/topic/a").name == "topic.a"
    assert parse_topic_name("/topic/queue/a").name == "queue.a"
    assert parse_topic_name("/topic/jms.queue.a").name == "jms.queue.a"


@pytest.mark.parametrize("prefix", ["temp-queue", "temp-topic", "reply-queue", "exchange"])
def test_destinations_of_other_kinds_are_no_topics(prefix: str) -> None:
    for destination in (f"/{prefix}/a", f"/{prefix}/", f"/{prefix}"):
        with pytest.raises(InvalidDestination, match=r"not supported yet|only one connection has"):
            parse_pattern(destination)
    # A word that merely begins like one, or stands elsewhere, is an ordinary name.
    assert parse_topic_name(f"/{prefix}ing/a").name == f"{prefix}ing.a"
    assert parse_topic_name(f"/topic/{prefix}/a").name == f"{prefix}.a"
    assert parse_topic_name(f"a/{prefix}/b").name == f"a.{prefix}.b"


@pytest.mark.parametrize(
    ("destinations", "instead"),
    [
        (["topic/a", "topic://a", "topic:a", "/topics/a", "topics/a", "/topics", "/Topic/a"], "use /topic/NAME"),
        (["/TOPIC/a", "//topic/a", "/topic.a", "/topic:a", "jms.topic.a", "/jms/topic/a"], "use /topic/NAME"),
        (["dynamicTopics/a"], "use /topic/NAME"),
        (["/topic", "/topic/"], "names no topic; use /topic/NAME"),
        (["queue/a", "queue://a", "queue:a", "/queues/a", "queues/a", "/queues", "/Queue/a"], "use /queue/NAME"),
        (["//queue/a", "/queue.a", "jms.queue.a", "/jms.queue.a", "dynamicQueues/a", "amq/queue/a"], "use /queue/NAME"),
        (["temp-queue/a", "temp-queue://a", "/temp-topic/a", "/remote-temp-queue/a", "reply-queue/a"], "temporary"),
        (["/topic/a,/topic/b", "/queue/a, /topic/b", "a,topic/b", "topic://a,topic://b"], "each of them for itself"),
        (["/topic/a?consumer.retroactive=true", "a?x=1"], "write them as headers"),
        ([" /topic/a", "/topic/a ", "\ta", "a\n"], "leave it out"),
        (["dsub/a"], "/dsub/ID means a durable subscription"),
    ],
)
def test_a_look_alike_is_refused_with_what_to_write_instead(destinations: list[str], instead: str) -> None:
    for destination in destinations:
        for parse in (parse_pattern, parse_topic_name):
            with pytest.raises(InvalidDestination) as raised:
                parse(destination)
            assert repr(destination) in str(raised.value)
            assert instead in str(raised.value)


@pytest.mark.parametrize(
    "destination",
    [
        "a/b",
        "topic",
        "topic.a",
        "topics.a",
        "queue",
        "queue.a",
        "dsub",
        "temp-queue",
        "topical/a",
        "a,b",
        "a?",
        "a?b",
        "a b",
        "a::b",
    ],
)
def test_what_merely_reminds_of_one_is_a_topic(destination: str) -> None:
    assert parse_topic_name(destination).name == destination.replace("/", ".")


def test_a_long_destination_does_not_hide_what_to_write_instead() -> None:
    with pytest.raises(InvalidDestination) as raised:
        parse_topic_name("topic/" + "a" * 30_000)

    assert len(str(raised.value)) < 500
    assert "use /topic/NAME" in str(raised.value)


def test_an_operator_may_name_a_topic_as_it_is_shown() -> None:
    for name in ("topic.a", "jms.queue.a", "DLQ.topics.a"):
        assert parse_shown_topic(name).name == parse_shown_topic(f"/topic/{name}").name == name
    with pytest.raises(InvalidDestination, match="names no queue"):
        parse_shown_topic("/queue/")
    assert parse_shown_topic("/queue/a").kind is DestinationKind.QUEUE


@pytest.mark.parametrize("destination", ["a", "/topic/jms.queue.a", "a.*.>", "DLQ.a"])
def test_a_pattern_is_found_again_by_its_key(destination: str) -> None:
    pattern = parse_pattern(destination)
    queue = Pattern(pattern.segments, DestinationKind.QUEUE)

    assert pattern.key == pattern.name
    assert Pattern.keyed(pattern.key) == pattern == parse_pattern(str(pattern))
    assert Pattern.keyed(queue.key) == queue != pattern


def test_the_dead_letters_of_a_queue_are_in_a_queue() -> None:
    queue = Pattern(("a", "b"), DestinationKind.QUEUE)

    assert str(queue.dead_letters) == "/queue/DLQ.a.b"
    assert queue.dead_letters.origin == queue


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
