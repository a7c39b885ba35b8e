"""Which durable subscription a frame means, in every broker's dialect.

Law: headers in, an identity out, or a PeerViolation that says what is missing. Whether there is such a subscription is
asked of the registry by whoever wants to know.

    activemq.subscriptionName, durable-subscription-name,      named within the CONNECT's client-id
    durable-subscriber-name
    x-queue-name                                               named, without a client-id
    durable:true or persistent:true, with an id                the id is the name within the client-id; without one,
                                                               within the destination
    destination:/dsub/ID                                       the one that has this name, wherever
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker.delivery import Identity, IdentityKind
from stompbroker.errors import PeerViolation
from stompbroker.sessions.header_values import truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.delivery import Pattern

__all__ = [
    "DSUB_PREFIX",
    "asks_for_durable",
    "check_name",
    "find_by_name",
    "is_named",
    "read_identity",
    "refuse_nul",
]

#: What other brokers' clients call the name of a durable subscription.
_NAMES: Final = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
_QUEUE_NAME: Final = "x-queue-name"
_DURABLE: Final = ("durable", "persistent")

DSUB_PREFIX: Final = "/dsub/"
#: Bytes of UTF-8 in a client id or a name: they are kept, indexed and typed by people.
MAX_NAME_BYTES: Final = 255
#: There is no login yet.
_OWNER: Final = ""


def refuse_nul(header: str, value: str) -> None:
    """What is kept as text must not hold it: not every database can."""
    if "\0" in value:
        raise PeerViolation(f"malformed header {header!r}", "it holds a NUL, which no text may")


def check_name(header: str, value: str) -> str:
    if not value:
        raise PeerViolation(f"empty header {header!r}", "a name needs at least one character")
    refuse_nul(header, value)
    size_bytes = len(value.encode())
    if size_bytes > MAX_NAME_BYTES:
        raise PeerViolation(f"header {header!r} too long", f"{MAX_NAME_BYTES} bytes are allowed; it has {size_bytes}")
    return value


def asks_for_durable(headers: Mapping[str, str]) -> bool:
    """Whether a SUBSCRIBE wants a durable subscription, or an UNSUBSCRIBE wants one deleted."""
    if any(name in headers for name in _NAMES):
        return True
    said = [truth(name, headers[name]) for name in _DURABLE if name in headers]
    # RabbitMQ's clients may ask for one that goes with its last consumer, which is a transient one.
    if truth("auto-delete", headers.get("auto-delete", "false")):
        return False
    return any(said) or (_QUEUE_NAME in headers and not said)


def is_named(headers: Mapping[str, str]) -> bool:
    """Whether the frame gives a name, not merely an id."""
    return any(name in headers for name in (*_NAMES, _QUEUE_NAME))


def read_identity(headers: Mapping[str, str], pattern: Pattern | None, client_id: str | None) -> Identity | None:
    """What the durable subscription is known by; None if only its name is known: the frame gives no destination.

    Raises PeerViolation if the frame does not name it at all.
    """
    for header in _NAMES:
        if header in headers:
            if client_id is None:
                raise PeerViolation(
                    "durable subscription without client-id",
                    f"{header!r} names a subscription of one client: give CONNECT a 'client-id' header",
                )
            return Identity(_OWNER, IdentityKind.NAMED, client_id, check_name(header, headers[header]))
    if _QUEUE_NAME in headers:
        return Identity(_OWNER, IdentityKind.NAMED, "", check_name(_QUEUE_NAME, headers[_QUEUE_NAME]))
    if "id" not in headers:
        raise PeerViolation("durable subscription without id", "it is known by its 'id' header, which is missing")
    name = check_name("id", headers["id"])
    if client_id is not None:
        return Identity(_OWNER, IdentityKind.NAMED, client_id, name)
    if pattern is None:
        return None
    return Identity(_OWNER, IdentityKind.ADDRESSED, pattern.key, name)


def find_by_name(name: str, known: Iterable[Identity], client_id: str | None) -> Identity:
    """The durable subscription of that name: this client's own, or else the only one there is."""
    found = [identity for identity in known if identity.name == name]
    own = [identity for identity in found if identity.kind is IdentityKind.NAMED and identity.scope == client_id]
    if len(own) == 1 or len(found) == 1:
        return (own or found)[0]
    if not found:
        raise PeerViolation("unknown durable subscription", f"there is none with the id {name!r}")
    listed = ", ".join(sorted(identity.key for identity in found[:10]))
    raise PeerViolation("ambiguous durable subscription", f"the id {name!r} is that of {len(found)}: {listed}")
