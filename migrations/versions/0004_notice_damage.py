"""Notice damage: a checksum for every row, and a reason for every offset without a message.

Why: a row that was altered on disk was delivered altered, and one that was lost counted as collected. Now every row has
a checksum, and an offset without a message lies in a gap that was written down, or its message is lost.
Kind: expand; on either engine no row is touched, however many there are. Rows from before have no checksum and are not
checked; topics from before are whole from their next offset on.
Previous release: one that runs can go on, since it names its columns, but the rows it changes keep their old checksums:
stop it first. It does not start on the result: downgrade first, which forgets all this.

Revision 0004, after 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_CHECKED = (
    "topics",
    "messages",
    "subscriptions",
    "cursors",
    "redeliveries",
    "ledger_batches",
    "ledger_exports",
    "journal_state",
)


def upgrade() -> None:
    op.create_table(
        "gaps",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stop", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("topic_id", "stop", "start", name=op.f("pk_gaps")),
    )
    op.add_column("topics", sa.Column("whole_from", sa.BigInteger(), nullable=True))
    op.add_column("journal_state", sa.Column("was_closed", sa.Boolean(), nullable=False, server_default=sa.false()))
    for table in _CHECKED:
        op.add_column(table, sa.Column("checksum", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for table in reversed(_CHECKED):
        op.drop_column(table, "checksum")
    op.drop_column("journal_state", "was_closed")
    op.drop_column("topics", "whole_from")
    op.drop_table("gaps")
