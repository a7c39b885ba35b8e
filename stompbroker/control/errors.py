"""What may be said to whoever asks something of a running broker."""

from __future__ import annotations

from stompbroker.errors import BrokerError

__all__ = ["ControlError"]


class ControlError(BrokerError):
    """Somebody asked for something that cannot be done; the text says why and what can."""
