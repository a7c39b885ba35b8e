"""Create the tables.

Why: topics, their messages, durable subscriptions and where each of them stands must outlive the process.
Kind: expand; there was nothing before.
Previous release: kept nothing, and can still run.

Revision 0001, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: SQLite keeps a table in the order of its INTEGER PRIMARY KEY, which must be spelt so.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "journal_state",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_description", sa.Text(), nullable=False),
        sa.Column("start_number", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_journal_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_state")),
    )
    op.create_table(
        "topics",
        sa.Column("id", _ID, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
    )
    op.create_table(
        "messages",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("published_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("publisher", sa.Text(), nullable=False),
        sa.Column("body_bytes", sa.BigInteger(), nullable=False),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "offset", name=op.f("pk_messages")),
    )
    op.create_table(
        "subscriptions",
        sa.Column("id", _ID, autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("ack_mode", sa.Text(), nullable=False),
        sa.Column("is_no_local", sa.Boolean(), nullable=False),
        sa.Column("created_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriptions")),
        sa.UniqueConstraint("owner", "kind", "scope", "name", name=op.f("uq_subscriptions_owner_kind_scope_name")),
    )
    op.create_table(
        "cursors",
        sa.Column("subscription_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ack_floor", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.LargeBinary(), nullable=False),
        sa.Column("sent_up_to", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", "topic_id", name=op.f("pk_cursors")),
    )
    op.create_index(op.f("ix_cursors_topic_id"), "cursors", ["topic_id"])
    op.create_table(
        "redeliveries",
        sa.Column("subscription_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("due_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subscription_id", "topic_id", "offset", name=op.f("pk_redeliveries")),
    )
    op.create_index(op.f("ix_redeliveries_topic_id"), "redeliveries", ["topic_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_redeliveries_topic_id"), table_name="redeliveries")
    op.drop_table("redeliveries")
    op.drop_index(op.f("ix_cursors_topic_id"), table_name="cursors")
    op.drop_table("cursors")
    op.drop_table("subscriptions")
    op.drop_table("messages")
    op.drop_table("topics")
    op.drop_table("journal_state")
