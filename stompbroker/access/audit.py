"""The audit log: who logged in from where, who was refused, what was denied, what an operator did.

Law: these four events, always with the same fields. What anybody can cause without a login is throttled, so that a
flood does not fill the disk; what an operator does is always written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from stompbroker.errors import shorten

if TYPE_CHECKING:
    from stompbroker.log_throttle import LogThrottle

#: Characters of a client's text in a line.
MAX_SHOWN: Final = 200

log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True)
class Audit:
    _throttle: LogThrottle

    def logged_in(self, user: str, address: str, endpoint: str, what: str = "") -> None:
        log.info("login", user=user, address=address, endpoint=endpoint, what=what)

    def refused(self, user: str, address: str, endpoint: str, what: str) -> None:
        """A login; `user` is the name that was given. One kind for each address."""
        user, what = shorten(user, MAX_SHOWN), shorten(what, MAX_SHOWN)
        self._throttle.log(
            "warning", "login refused", (address,), user=user, address=address, endpoint=endpoint, what=what
        )

    def denied(self, user: str, address: str, endpoint: str, what: str) -> None:
        """Somebody who is logged in may not do this. One kind for each user and thing."""
        what = shorten(what, MAX_SHOWN)
        self._throttle.log("warning", "denied", (user, what), user=user, address=address, endpoint=endpoint, what=what)

    def acted(self, user: str, address: str, endpoint: str, what: str) -> None:
        log.info("operator action", user=user, address=address, endpoint=endpoint, what=shorten(what, MAX_SHOWN))
