"""Answers of a consumer that count at once, as a session gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.delivery import answering

if TYPE_CHECKING:
    from stompbroker.delivery import Consumer, Refusal


def acknowledge(consumer: Consumer, first: int, last: int, now_ns: int = 0) -> None:
    """Settle the deliveries numbered first..last; in `client` mode everything sent before them too."""
    answering.settle(consumer, answering.acknowledged(consumer, first, last), now_ns)


def refuse(consumer: Consumer, number: int, refusal: Refusal) -> None:
    """Set a delivery aside; in `client` mode everything sent before it too."""
    answering.set_aside(consumer, answering.refused(consumer, number, number), refusal)
