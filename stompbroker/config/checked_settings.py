"""Settings that can work together.

Law: only what really cannot work is refused, each with a sentence that says why and what to do. What is merely
unwise, such as a max_transaction_bytes below max_body_bytes (the largest bodies then go outside of transactions
only), is the operator's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from pydantic import model_validator

from stompbroker.config.quantities import bytes_as_text
from stompbroker.config.settings import UncheckedSettings
from stompbroker.delivery import Pattern, SlowSubscriber, parse_pattern
from stompbroker.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbroker.config.topic_settings import TopicSettings

__all__ = ["Contradicting", "Contradiction", "Settings"]

#: A body or a transaction is held whole while it arrives. As a divisor of `memory_limit`: a few clients that send
#: their largest at the same moment must not fill the budget all connections live on.
LARGEST_PIECE_DIVISOR = 4


@final
@dataclass(frozen=True, slots=True)
class Contradiction:
    """The keys that do not go together, and the sentence about them."""

    keys: tuple[str, ...]
    sentence: str


class Contradicting(ValueError):
    """Carries what was found through pydantic, which knows only ValueErrors."""

    def __init__(self, found: Sequence[Contradiction]) -> None:
        super().__init__(" ".join(one.sentence for one in found))
        self.found = found


@final
class Settings(UncheckedSettings):
    """All settings of one broker."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Settings:
        found = list(_contradictions(self))
        if found:
            raise Contradicting(found)
        return self


def _contradictions(settings: UncheckedSettings) -> Iterator[Contradiction]:
    if settings.default_prefetch > settings.max_prefetch:
        yield Contradiction(
            ("default_prefetch", "max_prefetch"),
            f"default_prefetch ({settings.default_prefetch}) is above max_prefetch ({settings.max_prefetch}): "
            "a subscriber that names no number would get more than is allowed; lower the one or raise the other.",
        )
    yield from _open_to_everybody(settings)
    yield from _too_large_for_memory(settings)
    for number, table in enumerate((None, *settings.topics)):
        yield from _unworkable_policy(settings, number, table)
    yield from _useless_patterns(settings.topics)


def _open_to_everybody(settings: UncheckedSettings) -> Iterator[Contradiction]:
    if settings.http_token and settings.http_token_file:
        yield Contradiction(
            ("http_token", "http_token_file"), "http_token and http_token_file are two tokens; give one of them."
        )
    is_local = settings.http_host == "localhost" or settings.http_host in ("127.0.0.1", "::1")
    if settings.http_enabled and not is_local and not settings.http_token and not settings.http_token_file:
        yield Contradiction(
            ("http_host", "http_token", "http_token_file"),
            f"http_host ({settings.http_host}) can be reached from elsewhere, and then whoever reaches it may delete "
            "subscriptions; set http_token or http_token_file, or leave http_host at 127.0.0.1.",
        )


def _too_large_for_memory(settings: UncheckedSettings) -> Iterator[Contradiction]:
    largest_bytes = settings.memory_limit // LARGEST_PIECE_DIVISOR
    pieces = {"max_body_bytes": settings.max_body_bytes, "max_transaction_bytes": settings.max_transaction_bytes}
    for key, size in pieces.items():
        if size > largest_bytes:
            yield Contradiction(
                (key, "memory_limit"),
                f"{key} ({bytes_as_text(size)}) is above a quarter of memory_limit "
                f"({bytes_as_text(settings.memory_limit)}): a few clients could take the memory of all; "
                f"lower it to {bytes_as_text(largest_bytes)} or raise memory_limit.",
            )


def _unworkable_policy(
    settings: UncheckedSettings, number: int, table: TopicSettings | None
) -> Iterator[Contradiction]:
    """The general policy has no table; a table is blamed only for what it sets itself."""
    policy = settings.policy(table)
    place, in_topics = ("", ()) if table is None else (f'topics table {number} ("{table.pattern}"): ', ("topics",))

    def sets(*keys: str) -> bool:
        return table is None or not table.overrides().keys().isdisjoint(keys)

    def contradiction(keys: tuple[str, ...], sentence: str) -> Contradiction:
        return Contradiction((*in_topics, *keys), place + sentence)

    if policy.window_bytes > settings.memory_limit and sets("window_bytes"):
        yield contradiction(
            ("window_bytes", "memory_limit"),
            f"window_bytes ({bytes_as_text(policy.window_bytes)}) is above memory_limit "
            f"({bytes_as_text(settings.memory_limit)}): one slow subscriber would stop the publishers of all topics "
            "before the window of its own is full; lower the one or raise the other.",
        )
    keys = ("slow_subscriber", "block_timeout_s")
    if policy.slow_subscriber is SlowSubscriber.BLOCK and policy.block_timeout_s == 0 and sets(*keys):
        yield contradiction(
            keys,
            'slow_subscriber "block" with a block_timeout_s of 0 would block nobody, but disconnect every '
            'subscriber that falls behind; say so with slow_subscriber "disconnect", or give it time.',
        )
    delivery = policy.delivery
    keys = ("redelivery_first_delay_ms", "redelivery_max_delay_ms")
    if delivery.first_delay_ms > delivery.max_delay_ms and sets(*keys):
        yield contradiction(
            keys,
            f"redelivery_first_delay_ms ({delivery.first_delay_ms}) is above redelivery_max_delay_ms "
            f"({delivery.max_delay_ms}): no wait could be as long as the first one; lower the one or raise the other.",
        )
    idle = policy.idle
    keys = ("idle_delete_unsettled", "idle_delete_s")
    if idle.deletes_unsettled and idle.delete_after_s == 0 and sets(*keys):
        yield contradiction(
            keys,
            "idle_delete_unsettled is true while idle_delete_s is 0: no durable subscription would ever be deleted; "
            "say after which time, or leave it false.",
        )
    keys = ("idle_delete_s", "idle_warning_s")
    if 0 < idle.delete_after_s < idle.warn_after_s and sets(*keys):
        yield contradiction(
            keys,
            f"idle_delete_s ({idle.delete_after_s}) is below idle_warning_s ({idle.warn_after_s}): the warning would "
            "come after the deletion; lower idle_warning_s, or set it to 0 for no warning.",
        )


def _useless_patterns(topics: Sequence[TopicSettings]) -> Iterator[Contradiction]:
    first_with: dict[Pattern, int] = {}
    for number, table in enumerate(topics, start=1):
        try:
            earlier = first_with.setdefault(parse_pattern(table.pattern), number)
        except InvalidDestination as error:
            yield Contradiction(("topics",), f'topics table {number}: pattern "{table.pattern}": {error}')
            continue
        if earlier != number:
            yield Contradiction(
                ("topics",),
                f'topics table {number}: pattern "{table.pattern}" matches the same topics as table {earlier} '
                f'("{topics[earlier - 1].pattern}"), which comes first and wins; remove one of them.',
            )
