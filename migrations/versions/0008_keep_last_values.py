"""Keep the last value of a topic.

Why: newcomers get it before anything else, also after a restart; and it must not pin the topic's messages.
Kind: expand; a table of its own, no other is touched.
Previous release: one that runs can go on, and shows no values. It does not start on the result: downgrade first, which
drops them.

Revision 0008, after 0007.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "last_values",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("published_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("publisher", sa.Text(), nullable=False),
        sa.Column("body_bytes", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ns", sa.BigInteger(), nullable=True),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_last_values")),
    )


def downgrade() -> None:
    op.drop_table("last_values")
