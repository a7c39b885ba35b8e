"""Where clients connect: a scheme and an address.

Law: text in, a value out, or an OperatorError that says what is possible. Opens and resolves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from stompbroker.errors import OperatorError, shorten

_POSSIBLE: Final = "Possible is stomp://HOST:PORT, with an IPv6 address in brackets, such as stomp://[::1]:61613."

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://(.*)", re.ASCII | re.DOTALL)
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/?#@\[\]%]+)):([0-9]{1,5})", re.ASCII)
_MAX_PORT: Final = 65_535
#: Characters of a wrong endpoint that are repeated.
_MAX_SHOWN: Final = 100


class Scheme(StrEnum):
    STOMP = "stomp"
    #: The management endpoint.
    HTTP = "http"


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    scheme: Scheme
    #: A name or an address, an IPv6 one without brackets.
    host: str
    #: 0 lets the listener choose a free one.
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """An endpoint for clients of the broker. Raises OperatorError."""
        shown = repr(shorten(text, _MAX_SHOWN))
        url = _URL.fullmatch(text)
        if url is None:
            raise OperatorError(f"{shown} is not an endpoint. {_POSSIBLE}")
        if url[1].lower() != Scheme.STOMP:
            raise OperatorError(f"{shown}: the broker cannot serve {url[1]}:// to its clients. {_POSSIBLE}")
        address = _ADDRESS.fullmatch(url[2])
        if address is None or int(address[3]) > _MAX_PORT:
            raise OperatorError(f"{shown} does not name a host and a port up to {_MAX_PORT}. {_POSSIBLE}")
        return cls(Scheme.STOMP, address[1] or address[2], int(address[3]))

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"
