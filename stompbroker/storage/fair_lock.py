"""A lock that goes to whoever waits for it.

Law: two locks, so that who has just let go cannot take it again before one who waited. A plain lock goes to the first
to ask, and a writer that never rests is always first.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Turns"]


@final
class Turns:
    """Held for the length of a `with` block.

    Invariants:
        who waits for `_held` holds `_next`; so nobody else asks for `_held`
    """

    __slots__ = ("_held", "_next")

    def __init__(self) -> None:
        self._next = Lock()
        self._held = Lock()

    def __enter__(self) -> None:
        with self._next:
            self._held.acquire()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._held.release()
