"""Opens the management endpoint, as the settings have it.

Law: sockets and the token; what is served there is not its business.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stompbroker.config import MIN_TOKEN
from stompbroker.errors import OperatorError
from stompbroker.management.access import Access
from stompbroker.management.server import Management
from stompbroker.transport import Endpoint, Scheme, open_sockets

if TYPE_CHECKING:
    from stompbroker.config import Settings
    from stompbroker.control import Control
    from stompbroker.log_throttle import LogThrottle

__all__ = ["open_management"]


async def open_management(settings: Settings, control: Control, throttle: LogThrottle) -> Management | None:
    """Listen for HTTP, if that is wanted. Raises OperatorError."""
    if not settings.http_enabled:
        return None
    token = settings.http_token or _token_in(settings.http_token_file)
    try:
        sockets = await open_sockets(Endpoint(Scheme.HTTP, settings.http_host, settings.http_port))
    except OperatorError as error:
        raise OperatorError(
            f"{error} That is the management endpoint: give it another port with --http-port (0 takes any free one), "
            "or go without it with --set http_enabled=false."
        ) from error
    return Management(control, Access(settings.http_host, token), sockets, throttle)


def _token_in(file: str) -> str | None:
    """Raises OperatorError."""
    if not file:
        return None
    try:
        token = Path(file).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The file {file} (http_token_file) cannot be read: {error}.") from error
    if len(token) < MIN_TOKEN:
        raise OperatorError(f"The token in {file} (http_token_file) must have at least {MIN_TOKEN} characters.")
    return token
