"""Let messages expire or be for one subscription, and let subscriptions wish for how they are delivered to.

Why: what expires must be found without a look at everything; a dead letter that is tried again goes to the one
subscription it failed for; order, wishes, and when and how often a message failed must outlive the process.
Kind: expand; on either engine no row is touched, however many there are.
Previous release: one that runs can go on, since it names its columns and the defaults fill in the others, but it
delivers what has expired, and to everybody. It does not start on the result: downgrade first, which forgets all this.

Revision 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_EXPIRES = sa.text("expires_at_ns IS NOT NULL")


def upgrade() -> None:
    op.add_column("messages", sa.Column("expires_at_ns", sa.BigInteger(), nullable=True))
    op.add_column("messages", sa.Column("only_for", sa.BigInteger(), nullable=True))
    op.create_index(
        op.f("ix_messages_expires_at_ns_topic_id_offset"),
        "messages",
        ["expires_at_ns", "topic_id", "offset"],
        sqlite_where=_EXPIRES,
        postgresql_where=_EXPIRES,
    )
    op.add_column("subscriptions", sa.Column("is_ordered", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("subscriptions", sa.Column("delivery", sa.Text(), nullable=False, server_default=""))
    for name in ("first_attempt_at_ns", "last_attempt_at_ns"):
        op.add_column("redeliveries", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("redeliveries", sa.Column("is_final", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    # SQLite drops a column in place as well, from 3.35 on.
    for name in ("is_final", "last_attempt_at_ns", "first_attempt_at_ns"):
        op.drop_column("redeliveries", name)
    for name in ("delivery", "is_ordered"):
        op.drop_column("subscriptions", name)
    op.drop_index(op.f("ix_messages_expires_at_ns_topic_id_offset"), table_name="messages")
    for name in ("only_for", "expires_at_ns"):
        op.drop_column("messages", name)
