"""What settings cannot have at the same time.

Law: one sentence for each, which says why it cannot work and what to do; it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.config.places import EMBEDDED, IN_DATA_DIRECTORY, MEMORY
from stompbroker.config.settings import ClientCertificates, bytes_as_text
from stompbroker.delivery import DestinationKind, SlowSubscriber, parse_pattern
from stompbroker.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbroker.config.checked_settings import QueueSettings, Settings, TopicSettings
    from stompbroker.delivery import Pattern, TopicPolicy

#: A body or a transaction is held whole while it arrives. As a divisor of `memory_limit`: a few clients that send
#: their largest at the same moment must not fill the budget all connections live on.
LARGEST_PIECE_DIVISOR: Final = 4


class Contradiction(NamedTuple):
    keys: tuple[str, ...]
    sentence: str


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    if settings.default_prefetch > settings.max_prefetch:
        yield Contradiction(
            ("default_prefetch", "max_prefetch"),
            f"default_prefetch ({settings.default_prefetch}) is above max_prefetch ({settings.max_prefetch}): "
            "a subscriber that names no number would get more than is allowed; lower the one or raise the other.",
        )
    if settings.http_token and settings.http_token_file:
        yield Contradiction(
            ("http_token", "http_token_file"), "http_token and http_token_file are two tokens; give one of them."
        )
    if settings.http_tls and not settings.tls_certificate:
        yield Contradiction(
            ("http_tls", "tls_certificate"),
            "http_tls needs tls_certificate: set the certificate's file, such as one that `stompbroker certificate` "
            "makes, or leave http_tls at false.",
        )
    for endpoint in settings.endpoints:
        if endpoint.scheme.is_encrypted and not settings.tls_certificate:
            yield Contradiction(
                ("listen", "tls_certificate"),
                f"{endpoint} needs tls_certificate: set the certificate's file, such as one that `stompbroker "
                "certificate` makes.",
            )
    if settings.tls_client_certificates is ClientCertificates.REQUIRED and not settings.tls_client_ca:
        yield Contradiction(
            ("tls_client_certificates", "tls_client_ca"),
            "tls_client_certificates is required, but no tls_client_ca says whose certificates are accepted; set that.",
        )
    if settings.standby:
        yield from _no_standby(settings)
    largest_bytes = settings.memory_limit // LARGEST_PIECE_DIVISOR
    for key in ("max_body_bytes", "max_transaction_bytes"):
        if (size := getattr(settings, key)) > largest_bytes:
            yield Contradiction(
                (key, "memory_limit"),
                f"{key} ({bytes_as_text(size)}) is above a quarter of memory_limit "
                f"({bytes_as_text(settings.memory_limit)}): a few clients could take the memory of all; "
                f"lower it to {bytes_as_text(largest_bytes)} or raise memory_limit.",
            )
    yield from _unworkable(settings, settings.policy())
    for number, table in enumerate(settings.topics, start=1):
        for keys, sentence in _unworkable(settings, settings.policy(table)):
            # A table is blamed only for what it sets itself.
            if not table.overrides().keys().isdisjoint(keys):
                yield Contradiction(("topics", *keys), f'topics table {number} ("{table.pattern}"): {sentence}')
    yield from _useless_patterns(settings.topics)
    yield from _wrong_queues(settings.queues)


def _no_standby(settings: Settings) -> Iterator[Contradiction]:
    if settings.database in (EMBEDDED, MEMORY):
        sentence = "standby needs a store that two machines can reach: set database to a PostgreSQL server."
        yield Contradiction(("standby", "database"), sentence)
    if settings.lease_s == 0:
        sentence = "standby needs a lease, or a broker that has taken over could not be relieved: set lease_s."
        yield Contradiction(("standby", "lease_s"), sentence)
    if settings.ledger and settings.lake == IN_DATA_DIRECTORY:
        yield Contradiction(
            ("standby", "lake"),
            "standby with a lake in the data directory would leave a part of the ledger on each machine: set lake to "
            "s3://BUCKET/PATH or to a directory that both machines mount, or ledger to false.",
        )


def _unworkable(settings: Settings, policy: TopicPolicy) -> Iterator[Contradiction]:
    delivery, idle = policy.delivery, policy.idle
    if policy.window_bytes > settings.memory_limit:
        yield Contradiction(
            ("window_bytes", "memory_limit"),
            f"window_bytes ({bytes_as_text(policy.window_bytes)}) is above memory_limit "
            f"({bytes_as_text(settings.memory_limit)}): one slow subscriber would stop the publishers of all topics "
            "before the window of its own is full; lower the one or raise the other.",
        )
    if policy.slow_subscriber is SlowSubscriber.BLOCK and policy.block_timeout_s == 0:
        yield Contradiction(
            ("slow_subscriber", "block_timeout_s"),
            'slow_subscriber "block" with a block_timeout_s of 0 would block nobody, but disconnect every '
            'subscriber that falls behind; say so with slow_subscriber "disconnect", or give it time.',
        )
    if delivery.first_delay_ms > delivery.max_delay_ms:
        yield Contradiction(
            ("redelivery_first_delay_ms", "redelivery_max_delay_ms"),
            f"redelivery_first_delay_ms ({delivery.first_delay_ms}) is above redelivery_max_delay_ms "
            f"({delivery.max_delay_ms}): no wait could be as long as the first one; lower the one or raise the other.",
        )
    if idle.deletes_unsettled and idle.delete_after_s == 0:
        yield Contradiction(
            ("idle_delete_unsettled", "idle_delete_s"),
            "idle_delete_unsettled is true while idle_delete_s is 0: no durable subscription would ever be deleted; "
            "say after which time, or leave it false.",
        )
    if 0 < idle.delete_after_s < idle.warn_after_s:
        yield Contradiction(
            ("idle_delete_s", "idle_warning_s"),
            f"idle_delete_s ({idle.delete_after_s}) is below idle_warning_s ({idle.warn_after_s}): the warning would "
            "come after the deletion; lower idle_warning_s, or set it to 0 for no warning.",
        )


def _wrong_queues(queues: Sequence[QueueSettings]) -> Iterator[Contradiction]:
    first_with: dict[Pattern, int] = {}
    for number, table in enumerate(queues, start=1):
        try:
            earlier = first_with.setdefault(table.destination, number)
        except InvalidDestination as error:
            yield Contradiction(("queues",), f'queues table {number}: name "{table.name}": {error}')
            continue
        if earlier != number:
            yield Contradiction(
                ("queues",),
                f'queues table {number}: name "{table.name}" is the queue of table {earlier}; remove one of them.',
            )


def _useless_patterns(topics: Sequence[TopicSettings]) -> Iterator[Contradiction]:
    first_with: dict[Pattern, int] = {}
    for number, table in enumerate(topics, start=1):
        try:
            pattern = parse_pattern(table.pattern)
            if pattern.kind is DestinationKind.QUEUE:
                raise InvalidDestination("this means a queue; use a [[queues]] table with its name")
            earlier = first_with.setdefault(pattern, number)
        except InvalidDestination as error:
            yield Contradiction(("topics",), f'topics table {number}: pattern "{table.pattern}": {error}')
            continue
        if earlier != number:
            yield Contradiction(
                ("topics",),
                f'topics table {number}: pattern "{table.pattern}" matches the same topics as table {earlier} '
                f'("{topics[earlier - 1].pattern}"), which comes first and wins; remove one of them.',
            )
