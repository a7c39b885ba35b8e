"""What a database refuses for good, made by triggers in the file: an integrity error, as from a broken constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.journal.journal_under_test import query

if TYPE_CHECKING:
    from pathlib import Path

#: No message with this in it can be written, and no subscription of this name.
POISON: Final = b"poison"


def refuse_messages(data: Path) -> None:
    _refuse(data, "messages", "instr(NEW.tail, CAST('poison' AS BLOB)) > 0")


def refuse_outcomes(data: Path) -> None:
    """What publishers are told of their messages."""
    _refuse(data, "messages", "instr(NEW.tail, CAST('outcome-of:' AS BLOB)) > 0")


def refuse_subscriptions(data: Path) -> None:
    _refuse(data, "subscriptions", "NEW.name = 'poison'")


def refuse_redeliveries(data: Path) -> None:
    """What belongs to no unit."""
    _refuse(data, "redeliveries", "1")


def _refuse(data: Path, table: str, condition: str) -> None:
    query(
        data,
        f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} WHEN {condition} "
        "BEGIN SELECT RAISE(ABORT, 'this is poison'); END",
    )
