"""Keep the numbers of what producers have sent.

Why: a SEND that is repeated, also over a kill, is published once; so what was published must be known by its number, in
the same transaction.
Kind: expand; a table of its own, no other is touched.
Previous release: one that runs can go on, but takes what is repeated for another message. It does not start on the
result: downgrade first, which forgets the numbers.

Revision 0007, after 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "producers",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.LargeBinary(), nullable=False),
        sa.Column("used_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("owner", "name", name=op.f("pk_producers")),
    )


def downgrade() -> None:
    op.drop_table("producers")
