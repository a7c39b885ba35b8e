"""Whether these settings would serve strangers.

Law: an address that others can reach needs login, unless the operator says otherwise in so many words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.errors import OperatorError
from stompbroker.transport import is_loopback

if TYPE_CHECKING:
    from stompbroker.config.checked_settings import Settings


def refuse_exposure(settings: Settings, *, has_login: bool) -> None:
    """Raise OperatorError if anybody who reaches the broker could use it."""
    if has_login:
        return
    has_token = bool(settings.http_token or settings.http_token_file)
    if settings.http_enabled and not has_token and not is_loopback(settings.http_host):
        raise OperatorError(
            f"http_host ({settings.http_host}) can be reached from elsewhere, and anybody who reaches it may delete "
            f"subscriptions. Add a user: stompbroker users add NAME --data {settings.data} --role operator; or set "
            "http_token or http_token_file; or leave http_host at 127.0.0.1."
        )
    for endpoint in settings.endpoints:
        if endpoint.restrictions.proxies:
            raise OperatorError(
                f"{endpoint} is behind a proxy, so that it cannot be told who reaches it, and there is no login. Add a "
                f"user: stompbroker users add NAME --data {settings.data} --read '>' --write '>'"
            )
        if not endpoint.is_loopback and not settings.anonymous:
            raise OperatorError(
                f"{endpoint} can be reached from elsewhere, and there is no login: anybody could read and publish "
                f"everything. Add a user: stompbroker users add NAME --data {settings.data} --read '>' --write '>'; or "
                "serve this machine only: --host 127.0.0.1; or say that this is meant: --set anonymous=true"
            )
