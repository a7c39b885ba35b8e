"""stompbroker: a STOMP message broker that can be trusted with messages."""

__version__ = "0.1.0"
