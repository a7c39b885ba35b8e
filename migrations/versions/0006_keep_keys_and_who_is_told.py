"""Let messages have a key that orders them, and a destination where their publisher is told of their end.

Why: both must be known of a message that is read back, before it is delivered and without a look into its headers.
Kind: expand; on either engine no row is touched, however many there are.
Previous release: one that runs can go on, since it names its columns; but it knows no order by key, tells nobody, and
takes messages that have either for damaged, since their checksums cover them. It does not start on the result:
downgrade first, which is refused while there are such messages.

Revision 0006, after 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAMES = ("group_key", "outcome_to")


def upgrade() -> None:
    for name in _NAMES:
        op.add_column("messages", sa.Column(name, sa.Text(), nullable=True))


def downgrade() -> None:
    either = " OR ".join(f"{name} IS NOT NULL" for name in _NAMES)
    count = op.get_bind().execute(sa.text(f"SELECT count(*) FROM messages WHERE {either}")).scalar_one()
    if count:
        raise RuntimeError(
            f"There are {count} messages with a key or an outcome asked for, which the release before does not know: "
            "have them consumed or purged first."
        )
    for name in reversed(_NAMES):
        op.drop_column("messages", name)
