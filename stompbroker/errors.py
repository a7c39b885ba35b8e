"""The exception tree, split by who is to blame.

Law: an error says whose fault it is and carries the sentence that person should read. Nothing here knows
how an error is shown: the session turns a `PeerViolation` into an ERROR frame, the command line prints an
`OperatorError`, and everything else is a bug of ours and brings the nursery down.
"""

from __future__ import annotations

__all__ = ["BrokerError", "InvalidDestination", "OperatorError", "PeerViolation", "shorten"]

#: Characters of an error that are told and logged. Clients' own texts stand in them, and those may be long.
MAX_SUMMARY = 200
MAX_DETAIL = 1000


def shorten(text: str, length: int) -> str:
    """At most that many characters; that some are missing can be seen."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


class BrokerError(Exception):
    """Root of everything this project raises on purpose."""


class PeerViolation(BrokerError):
    """A client broke the protocol or a limit; it is told so in an ERROR frame and disconnected.

    `summary` becomes the ERROR's `message` header, `detail` its body: what was wrong and what is allowed.
    `receipt` is the receipt the offending frame asked for, and `headers` are further ERROR headers.
    """

    def __init__(
        self,
        summary: str,
        detail: str = "",
        *,
        receipt: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.summary = shorten(summary, MAX_SUMMARY)
        self.detail = shorten(detail, MAX_DETAIL)
        super().__init__(f"{self.summary}: {self.detail}" if detail else self.summary)
        self.receipt = receipt
        self.headers = headers


class InvalidDestination(BrokerError):
    """A destination or pattern that cannot be one; the text says why and what is allowed."""


class OperatorError(BrokerError):
    """Something the person who runs the broker has to mend: settings, ports, files."""
