"""Keep a ledger of settled deliveries, until it lies in the lake.

Why: what became of every delivery is kept from the transaction that settles it until a file holds it, and which file
that is must outlive the process; a failure says how often it was a refusal, a cursor how often it was moved.
Kind: expand; on either engine no row is touched, however many there are.
Previous release: one that runs can go on, since it names its columns and the defaults fill in the others; what it
settles is in no ledger. It does not start on the result: downgrade first, which forgets what is not yet in the lake.

Revision 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

#: SQLite keeps a table in the order of its INTEGER PRIMARY KEY, which must be spelt so.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ledger_batches",
        sa.Column("id", _ID, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("made_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_batches")),
    )
    op.create_index(op.f("ix_ledger_batches_kind_day_id"), "ledger_batches", ["kind", "day", "id"])
    op.create_table(
        "ledger_exports",
        sa.Column("id", _ID, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("after_batch", sa.BigInteger(), nullable=False),
        sa.Column("last_batch", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("planned_at_ns", sa.BigInteger(), nullable=False),
        sa.Column("is_written", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_exports")),
    )
    op.add_column("redeliveries", sa.Column("nacks", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("cursors", sa.Column("generation", sa.BigInteger(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    op.drop_column("cursors", "generation")
    op.drop_column("redeliveries", "nacks")
    op.drop_table("ledger_exports")
    op.drop_index(op.f("ix_ledger_batches_kind_day_id"), table_name="ledger_batches")
    op.drop_table("ledger_batches")
