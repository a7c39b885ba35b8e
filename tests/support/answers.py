"""Answers of a consumer that count at once, as a session gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompbroker.delivery import Consumer, Refusal

__all__ = ["acknowledge", "refuse"]


def acknowledge(consumer: Consumer, first: int, last: int, now_ns: int = 0) -> None:
    """Settle the deliveries numbered first..last; in `client` mode everything sent before them too."""
    consumer.settle(consumer.take_acknowledged(first, last), now_ns)


def refuse(consumer: Consumer, number: int, refusal: Refusal) -> None:
    """Set a delivery aside; in `client` mode everything sent before it too."""
    consumer.set_aside(consumer.take_refused(number, number), refusal)
