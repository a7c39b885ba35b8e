"""What a frame is once it has been read.

Law: values only. Hot path: one `Frame` is made per frame received, one `Head` per *distinct* header block
(see `head_memo`), so whatever can be known from the block alone belongs to the `Head`.
"""

from __future__ import annotations

from typing import final

__all__ = ["Frame", "Head"]


@final
class Head:
    """Command and headers of a frame: unescaped, the first of repeated headers winning, without `receipt`.

    `receipt` is kept on the frame, because it is the one header that differs where all others repeat.
    """

    __slots__ = ("command", "content_length", "headers", "plan")

    def __init__(self, command: str, headers: dict[str, str], content_length: int) -> None:
        self.command = command
        self.headers = headers
        #: -1 when the frame did not say; then its body ends at the first NUL.
        self.content_length = content_length
        #: A place for whoever acts on frames to keep what it derived from this head: equal blocks share one Head,
        #: so it is derived once and found again without a look-up. The protocol itself never touches it.
        self.plan: object = None

    def __repr__(self) -> str:
        return f"Head({self.command!r}, {self.headers!r})"


@final
class Frame:
    """One frame: a head, a body, and the receipt its sender asked for."""

    __slots__ = ("body", "head", "receipt")

    def __init__(self, head: Head, body: bytes, receipt: str | None) -> None:
        self.head = head
        self.body = body
        self.receipt = receipt

    @property
    def command(self) -> str:
        return self.head.command

    @property
    def headers(self) -> dict[str, str]:
        return self.head.headers

    def __repr__(self) -> str:
        return f"Frame({self.command!r}, {self.headers!r}, body={self.body!r}, receipt={self.receipt!r})"
