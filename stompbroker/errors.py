"""Exceptions, split by who is to blame; each carries the sentence that person should read.

Law: nothing here knows how an error is shown. A session turns a `PeerViolation` into an ERROR frame, the command line
prints an `OperatorError`, and everything else is a bug of ours and brings the nursery down.
"""

from __future__ import annotations

#: Characters of an error that are told and logged. It may quote a client's text, which may be long.
MAX_SUMMARY = 200
MAX_DETAIL = 1000
#: Characters of an ERROR's `message` header: some clients cut longer lines off, or refuse them.
MAX_MESSAGE = 500


def shorten(text: str, length: int) -> str:
    """At most that many characters; an ellipsis shows that some are missing."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _without_middle(text: str, length: int) -> str:
    """Cut in the middle: a sentence begins with what is wrong and ends with what to do."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


class BrokerError(Exception):
    """Root of everything this project raises on purpose."""


class PeerViolation(BrokerError):
    """A client broke the protocol or a limit; it gets an ERROR frame and is disconnected.

    `summary` says in a few words what is wrong; `detail` says what exactly, and what is allowed. The ERROR has both in
    its `message` header and `detail` in its body. `receipt` is what the offending frame asked for, `headers` are more
    ERROR headers.
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
        """Reason and remedy in one line, for clients that show only this header."""
        # No colon between them: it would be escaped, and some clients show headers as they come.
        said = f"{self.summary} - {self.detail}" if self.detail else self.summary
        return _without_middle(" ".join(said.replace("\0", " ").splitlines()), MAX_MESSAGE)


class Denied(PeerViolation):
    """A client asked for something that its user has no permission for."""


class InvalidDestination(BrokerError):
    """Not a destination or pattern; the text says why and what is allowed."""


class OperatorError(BrokerError):
    """Something the operator has to mend: settings, ports, files."""

    #: Whether it may be enough to start again.
    may_pass = False
