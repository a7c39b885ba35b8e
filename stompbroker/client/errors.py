"""What can go wrong for a user of the client; each error says what is known about the work that it ends.

Law: texts are facts, in one sentence or more; what to do about them is said by whoever knows the user's options.
Whatever a broker said is made safe to show.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import BrokerError
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClientError(BrokerError):
    """Root of everything that the client raises on purpose."""


@final
class InvalidAddress(ClientError):
    """Not the URL of a broker, or something that does not go with it: then the text has that `option` in brackets."""

    def __init__(self, text: str, *, option: str = "") -> None:
        super().__init__(text)
        self.option = option


@final
class Problem(Enum):
    """Why there is no connection."""

    NO_HOST = "the name is unknown"
    NOBODY_LISTENS = "nobody listens there"
    NO_ANSWER = "nothing came in time"
    NO_TLS = "TLS was tried, and not understood"
    NEEDS_TLS = "TLS is expected there"
    WRONG_NAME = "the certificate is for somebody else"
    WRONG_TIME = "the certificate is not valid yet, or any more"
    UNVERIFIED = "nobody who is trusted has signed the certificate"
    NO_WEBSOCKET = "the handshake of WebSocket was refused"
    NO_STOMP = "something else than STOMP is spoken there"
    SILENT = "nothing came for longer than was agreed"
    CLOSED = "the connection was closed or lost"
    REFUSED = "the broker answered with an ERROR"


class NoConnection(ClientError):
    """There was, or is, no connection; the client tries again unless it is told not to."""

    def __init__(self, problem: Problem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


class Refused(NoConnection):
    """The broker said ERROR, and ended the connection with it. `headers` and `body` are its own words."""

    def __init__(self, headers: Mapping[str, str], body: bytes, *, guess: str = "") -> None:
        self.headers = dict(headers)
        self.body = body
        self.message = readable(headers.get("message", "no reason given"))
        detail = readable(_without_stack(body).strip(), keeps_lines=True)
        lines = [] if detail in self.message else detail.split("\n")
        super().__init__(
            Problem.REFUSED, "\n  ".join([f"The broker refused: {self.message}", *lines, *filter(None, [guess])])
        )


@final
class LoginRefused(Refused):
    """The broker does not let this client in. It is not tried again: it would be the same."""


@final
class ProducerReplaced(Refused):
    """Another process has begun to send as this producer, so this client has ended: it must not send any more."""


@final
class GaveUp(ClientError):
    """There was no connection for as long as `give_up_after` allows; `__cause__` is the last failure."""


@final
class ClientClosed(ClientError):
    """The block of `connect` has ended, or has not begun."""


@final
class OutboxFull(ClientError):
    """As much is unconfirmed as may be; `publish` would have waited."""


@final
class Unconfirmed(ClientError):
    """The client has ended before this was confirmed. `was_sent` False: the broker cannot have it. `reason`: why."""

    def __init__(self, what: str, *, was_sent: bool, reason: ClientError) -> None:
        known = "was sent, but not confirmed: it may have arrived" if was_sent else "was not sent"
        super().__init__(f"{what} {known}. {reason}")
        self.was_sent = was_sent
        self.reason = reason


@final
class TransactionLost(ClientError):
    """Nothing of the transaction was done, and nothing will be."""


@final
class OutcomeUnknown(ClientError):
    """The connection was lost between COMMIT and its receipt: everything in the transaction was done, or nothing.
    `__cause__` is why it was lost: a `Refused`, if the broker has said ERROR, perhaps to what is in the transaction."""


@final
class AnswerLost(ClientError):
    """The connection was lost before the ACK or NACK was confirmed: the message comes again if it was not received."""


@final
class NobodyListens(ClientError):
    """No one was there to get the request."""


@final
class NoAnswer(ClientError):
    """Nobody has answered the request in time."""


@final
class AnswerUnreachable(ClientError):
    """The connection to which the answer would have come was lost after the broker had taken the request."""


@final
class TooSlow(ClientError):
    """More has gathered for a subscription than is kept; it has ended."""


#: Words in an ERROR before CONNECTED that no second attempt changes, in small letters: of this broker, RabbitMQ
#: ("Access refused for user", "Virtual host … access denied"), ActiveMQ and Artemis ("User name [x] or password is
#: invalid", "Security Error occurred"), and about versions.
_FINAL_WORDS: Final = (
    "login refused",
    "access refused",
    "access denied",
    "password is invalid",
    "security error",
    "authentication",
    "not authorized",
    "common version",
    "supported protocol versions",
    "supported versions",
)
#: Words that make such a refusal pass with time: somebody else may have tried wrong passwords from the same address.
_PASSING_WORDS: Final = ("too many wrong logins",)
#: How lines of a stack trace of Java begin.
_STACK_LINES: Final = ("\tat ", "\t... ")


def refusal_of_connect(headers: Mapping[str, str], body: bytes) -> Refused:
    """What an ERROR instead of CONNECTED means. Others than a wrong login may pass: too many connections, say."""
    said = f"{headers.get('message', '')}\n{_without_stack(body)}".lower()
    is_final = any(words in said for words in _FINAL_WORDS) and not any(words in said for words in _PASSING_WORDS)
    return (LoginRefused if is_final else Refused)(headers, body)


def _without_stack(body: bytes) -> str:
    """ActiveMQ adds where it was in its code, and names of its classes are no reason."""
    lines = body.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if not line.startswith(_STACK_LINES))


def refusal(headers: Mapping[str, str], body: bytes) -> Refused:
    """What an ERROR after CONNECTED means."""
    is_replaced = headers.get("message", "").startswith("producer has been replaced")
    return (ProducerReplaced if is_replaced else Refused)(headers, body)
