"""Notices that users, or the keys for tokens, have changed, and has every connection checked again.

So a revoked user is out within seconds, whether the files were changed or the operator sent a signal.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.access import Authenticator
    from stompbroker.ids import ConnectionId
    from stompbroker.sessions import Session

#: Seconds between two looks; a revocation must take effect within 5 s.
LOOK_EVERY_S: Final = 2.0
#: How long connections are checked before others get their turn.
STEP_S: Final = 0.001


async def run(authenticator: Authenticator, sessions: Mapping[ConnectionId, Session]) -> None:
    """Look until cancelled. Cancelling leaves the old rules or the new ones, never a mixture."""
    checked_rules = authenticator.version
    while True:
        with trio.move_on_after(LOOK_EVERY_S):
            await authenticator.changed.wait()
        await authenticator.look()
        while checked_rules != authenticator.version:
            checked_rules = authenticator.version
            await _renew_all(authenticator, sessions)


async def _renew_all(authenticator: Authenticator, sessions: Mapping[ConnectionId, Session]) -> None:
    """Those who connect meanwhile are checked by the new rules."""
    ends_at_s = perf_counter() + STEP_S
    for session in list(sessions.values()):
        session.renew(authenticator.renewed(session.client.grant))
        if perf_counter() > ends_at_s:
            await trio.lowlevel.checkpoint()
            ends_at_s = perf_counter() + STEP_S
