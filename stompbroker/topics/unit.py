"""What one chunk of a client, or one transaction, changes.

Law: a unit becomes durable as a whole, then visible as a whole; `complete` is the second step, one synchronous stretch.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.message import Message
    from stompbroker.topics.consumer import Consumer
    from stompbroker.topics.topic import Topic

__all__ = ["Answer", "Unit", "Verdict"]


@final
class Verdict(Enum):
    ACK = "acknowledged"
    NACK = "refused"


class Answer(NamedTuple):
    """A client's verdict on the deliveries numbered first..last of one consumer."""

    consumer: Consumer
    verdict: Verdict
    first: int
    last: int
    #: For a NACK: when the message goes again, and what the client gave as its reason.
    due_ns: int = 0
    reason: str = ""


@final
class Unit:
    """Messages and answers, in the order they were sent; `then` is called once all of it is durable and visible."""

    __slots__ = ("answers", "publications", "then")

    def __init__(
        self,
        publications: dict[Topic, list[Message]],
        answers: list[Answer],
        then: Callable[[], None],
    ) -> None:
        self.publications = publications
        self.answers = answers
        self.then = then

    def complete(self, now_ns: int) -> None:
        """Make it visible. Called by the journal, once, when the unit is durable."""
        for topic, messages in self.publications.items():
            topic.append(messages, now_ns)
        for answer in self.answers:
            if answer.consumer.subscription.is_closed:
                continue
            if answer.verdict is Verdict.ACK:
                answer.consumer.acknowledge(answer.first, answer.last)
            else:
                answer.consumer.refuse(answer.first, due_ns=answer.due_ns, reason=answer.reason)
        self.then()
