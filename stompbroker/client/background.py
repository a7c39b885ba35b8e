"""Tasks beside a block.

Law: the block's own exception leaves it as it is, not in a group, so that a user can write `except Refused`. The tasks
are cancelled at its end. One that fails has a mistake of ours: it cancels the block and comes out in trio's group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


@final
class Background:
    def __init__(self) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> trio.Nursery:
        self._nursery = await self._manager.__aenter__()
        return self._nursery

    async def __aexit__(self, *_: object) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)
