"""What may be said to whoever asks something of a running broker."""

from __future__ import annotations

from stompbroker.errors import BrokerError

__all__ = ["ControlError", "NotFound", "Unavailable"]


class ControlError(BrokerError):
    """Somebody asked for something that cannot be done; the text says why and what can."""


class NotFound(ControlError):
    """What was named is not there."""


class Unavailable(ControlError):
    """It cannot be done now, and perhaps later."""
