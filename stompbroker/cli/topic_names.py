"""Which topic a person means.

Law: a topic is named as in a SEND, with or without `/topic/`; a topic of dead letters also by the topic that they died
in. What cannot be a topic is a mistake in the command line.
"""

from __future__ import annotations

import typer

from stompbroker.delivery import Pattern, parse_shown_topic
from stompbroker.errors import InvalidDestination

__all__ = ["read_origin", "read_topic"]


def read_topic(given: str) -> str:
    """`orders` for orders and /topic/orders."""
    return _parse(given).name


def read_origin(given: str) -> str:
    """The topic whose dead letters are meant: `orders` for orders, /topic/orders, DLQ.orders and /topic/DLQ.orders."""
    topic = _parse(given)
    if not topic.is_of_dead_letters:
        return topic.name
    if len(topic.segments) == 1:
        raise typer.BadParameter(f'"{given}" does not say whose dead letters: DLQ.orders are those of orders')
    return topic.origin.name


def _parse(given: str) -> Pattern:
    try:
        return parse_shown_topic(given)
    except InvalidDestination as error:
        raise typer.BadParameter(str(error), param_hint="TOPIC") from None
