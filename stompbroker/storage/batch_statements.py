"""The statements of `batch_writing.py`, compiled from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam

from stompbroker.storage.batch_writing import BatchStatements
from stompbroker.storage.schema import (
    cursors,
    gaps,
    last_values,
    ledger_batches,
    ledger_exports,
    messages,
    producers,
    redeliveries,
    subscriptions,
    topics,
)
from stompbroker.storage.statements import IN_RANGE, deletion, insertion, upsert

if TYPE_CHECKING:
    from sqlalchemy import Column, Dialect

    from stompbroker.storage.many_rows import ManyRows

_NOT_NEEDED: Final = (gaps.c.topic_id == bindparam("topic_id"), gaps.c.stop <= bindparam("whole_from"))
_EXPORTED: Final = (
    ledger_batches.c.kind == bindparam("kind"),
    ledger_batches.c.day == bindparam("day"),
    ledger_batches.c.id > bindparam("after_batch"),
    ledger_batches.c.id <= bindparam("last_batch"),
)


def batch_statements(dialect: Dialect) -> BatchStatements:
    def removing(*columns: Column[Any]) -> ManyRows:
        return deletion(columns[0].table, [column == bindparam(column.name) for column in columns], dialect)

    of_topic = (*(table.c.topic_id for table in (messages, gaps, cursors, redeliveries)), topics.c.id)
    of_subscription = (cursors.c.subscription_id, redeliveries.c.subscription_id, subscriptions.c.id)
    delete_exported = deletion(ledger_batches, _EXPORTED, dialect)
    steps = (
        *map(removing, of_topic),
        *map(removing, of_subscription),
        upsert(topics, dialect, never_changed=["kind", "name"]),
        upsert(subscriptions, dialect),
        upsert(cursors, dialect),
        removing(*redeliveries.primary_key),
        upsert(redeliveries, dialect),
        removing(last_values.c.name),
        upsert(last_values, dialect),
        removing(*producers.primary_key),
        upsert(producers, dialect),
        deletion(messages, IN_RANGE, dialect),
        upsert(gaps, dialect),
        insertion(ledger_batches, dialect),
        upsert(ledger_exports, dialect),
        delete_exported,
        delete_exported,
        removing(ledger_exports.c.id),
    )
    left_out = ("expires_at_ns", "only_for", "group_key", "outcome_to")
    return BatchStatements(
        steps,
        close_gaps=deletion(gaps, _NOT_NEEDED, dialect),
        plain_messages=insertion(messages, dialect, left_out=left_out),
        all_messages=insertion(messages, dialect),
    )
