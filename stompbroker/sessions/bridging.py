"""What bridges say of the messages they bring, and what they are told of those they take away.

Law: headers in, values out, or a PeerViolation. A bridge is a user with the role `bridge`, or anybody where there is no
login and nobody but this machine gets in. It says with SEND, and others are refused that:

    bridge-path          store ids of the brokers that the message has passed, with commas between them
    bridge-origin        where it was published first: STORE/TOPIC/OFFSET, TOPIC being the store's number of it
    origin-message-id    its id there

All of them stay with the message. A message that was here already is not published, and its RECEIPT says `circle:true`.
Numbers of producers, beside `bridge-path`, are in one name space of all bridges: so two ways to here meet.

SUBSCRIBE with `bridge:true` gets with each MESSAGE, besides:

    bridge-offset        STORE/TOPIC/OFFSET of the message here
    bridge-published     when it was published here, in milliseconds since 1970
    bridge-expires       when it expires, if it ever does, in milliseconds since 1970
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stompbroker.access import ANYBODY, BRIDGE_ROLE
from stompbroker.errors import Denied
from stompbroker.sessions.headers import malformed, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.message import Message
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.session_context import SessionSettings

PATH: Final = "bridge-path"
_ORIGIN: Final = "bridge-origin"
_OF_SEND: Final = (PATH, _ORIGIN, "origin-message-id")
#: Store ids in a path: more brokers in a row are a circle that nobody has meant.
MAX_PATH: Final = 32
_STORE: Final = r"[A-Za-z0-9_.:-]{1,64}"
_PATH: Final = re.compile(rf"{_STORE}(,{_STORE}){{0,{MAX_PATH - 1}}}", re.ASCII)
_PLACE: Final = re.compile(rf"{_STORE}/[0-9]{{1,19}}/[0-9]{{1,19}}", re.ASCII)
_NS_PER_MS: Final = 1_000_000


def read_path(headers: Mapping[str, str], client: Client, settings: SessionSettings) -> list[str]:
    """The store ids that a SEND has passed; none if it does not come over a bridge. Raises PeerViolation."""
    given = [name for name in _OF_SEND if name in headers]
    if not given:
        return []
    _check_is_bridge(given[0], client, settings)
    if _ORIGIN in headers and not _PLACE.fullmatch(headers[_ORIGIN]):
        raise malformed(_ORIGIN, headers[_ORIGIN], "STORE/TOPIC/OFFSET")
    if PATH not in headers:
        return []
    if not _PATH.fullmatch(headers[PATH]):
        raise malformed(PATH, headers[PATH], f"a list of 1 to {MAX_PATH} store ids with commas between them")
    return headers[PATH].split(",")


def is_for_bridge(headers: Mapping[str, str], client: Client, settings: SessionSettings) -> bool:
    """Whether a SUBSCRIBE is a bridge's. Raises PeerViolation."""
    if not truth("bridge", headers.get("bridge", "false")):
        return False
    _check_is_bridge("bridge", client, settings)
    return True


def _check_is_bridge(header: str, client: Client, settings: SessionSettings) -> None:
    if BRIDGE_ROLE in client.grant.roles or (client.grant is ANYBODY and not settings.anonymous):
        return
    who = f"the user {client.grant.user!r}" if client.grant.user else "whoever has not logged in (anonymous = true)"
    raise Denied(
        "not allowed",
        f"the header {header!r} is for bridges, and {who} is none; leave it out, or have an operator give the role "
        f"{BRIDGE_ROLE}",
    )


def told_of(message: Message, store_id: str, topic_number: int, offset: int) -> bytes:
    """The header lines that a bridge gets with this message."""
    expires_at_ns = message.expires_at_ns
    expires = b"" if expires_at_ns is None else b"bridge-expires:%d\n" % -(-expires_at_ns // _NS_PER_MS)
    place = store_id.encode(), topic_number, offset
    published_ms = message.published_at_ns // _NS_PER_MS
    return b"bridge-offset:%b/%d/%d\nbridge-published:%d\n%b" % (*place, published_ms, expires)
