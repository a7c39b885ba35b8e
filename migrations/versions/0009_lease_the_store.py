"""Give the store of a server a lease, so that a stand-by can tell when its owner may not go on.

Why: a lock says that a session is there, not that its broker still serves; a lease ends by itself. It is a table of its
own, because a batch holds the row of `journal_state` until its COMMIT, and renewing must not wait for that.
Kind: expand; no row of another table is touched. On SQLite the table stays empty.
Previous release: one that runs can go on; it has no lease, so that a stand-by waits for its lock. It does not start on
the result: downgrade first.

Revision 0009, after 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_leases_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )


def downgrade() -> None:
    op.drop_table("leases")
