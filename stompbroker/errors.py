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
#: Characters of an ERROR's `message` header: some clients cut longer lines off, or refuse them.
MAX_MESSAGE = 500


def shorten(text: str, length: int) -> str:
    """At most that many characters; that some are missing can be seen."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _without_middle(text: str, length: int) -> str:
    """At most that many characters, of both ends: a sentence begins with what is wrong and ends with what to do."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


class BrokerError(Exception):
    """Root of everything this project raises on purpose."""


class PeerViolation(BrokerError):
    """A client broke the protocol or a limit; it is told so in an ERROR frame and disconnected.

    `summary` says what is wrong in a few words; `detail` says what exactly, and what is allowed or what to do instead.
    The ERROR has both in its `message` header, and `detail` in its body.
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
        self.detail = _without_middle(detail, MAX_DETAIL)
        super().__init__(f"{self.summary}: {self.detail}" if detail else self.summary)
        self.receipt = receipt
        self.headers = headers

    @property
    def message(self) -> str:
        """Reason and remedy in one line, for clients that show nothing else of an ERROR."""
        # Not a colon between them: it would be escaped, and some clients show headers as they come.
        said = f"{self.summary} - {self.detail}" if self.detail else self.summary
        return _without_middle(" ".join(said.replace("\0", " ").splitlines()), MAX_MESSAGE)


class InvalidDestination(BrokerError):
    """A destination or pattern that cannot be one; the text says why and what is allowed."""


class OperatorError(BrokerError):
    """Something the person who runs the broker has to mend: settings, ports, files."""
