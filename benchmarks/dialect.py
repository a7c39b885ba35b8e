"""How brokers differ: login, durable subscriptions, persistent messages, prefetch.

Frozen data and the headers that follow from it. What all STOMP 1.2 brokers share is in `frames`. The default dialect is
plain STOMP, which is all that our own broker needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.durable_identity import DurableIdentity

#: Header lines in order; nothing in them needs escaping.
Headers = tuple[tuple[str, str], ...]


class DurableSpelling(Enum):
    """The headers that make a subscription durable and identify it."""

    CLIENT_ID_AND_NAME = "client-id on CONNECT, activemq.subscriptionName on SUBSCRIBE"
    SUBSCRIPTION_ID = "durable:true and auto-delete:false on SUBSCRIBE, with an id that nobody else has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    #: The `host` of CONNECT; None: the host that the socket connects to.
    virtual_host: str | None = None
    #: Further headers of CONNECT.
    login: Headers = ()
    durable_spelling: DurableSpelling = DurableSpelling.CLIENT_ID_AND_NAME
    #: Headers of a SEND that must be on disk before its receipt.
    stored: Headers = ()
    #: Headers of a SUBSCRIBE with individual acknowledgements.
    prefetch: Headers = ()

    def of_connect(self, identity: DurableIdentity | None) -> Headers:
        if identity is None or self.durable_spelling is not DurableSpelling.CLIENT_ID_AND_NAME:
            return self.login
        return (*self.login, ("client-id", identity.client_id))

    def subscription_id(self, identity: DurableIdentity | None) -> str:
        """Each connection has one subscription; only a durable one may need a particular id."""
        if identity is None or self.durable_spelling is not DurableSpelling.SUBSCRIPTION_ID:
            return "0"
        return f"{identity.client_id}.{identity.name}"

    def of_subscribe(self, identity: DurableIdentity | None, *, acknowledges: bool) -> Headers:
        return (*self._durable(identity), *(self.prefetch if acknowledges else ()))

    def of_unsubscribe(self, identity: DurableIdentity) -> Headers:
        """The headers that delete a durable subscription instead of detaching from it."""
        return self._durable(identity)

    def of_send(self, *, is_stored: bool) -> Headers:
        return self.stored if is_stored else ()

    def _durable(self, identity: DurableIdentity | None) -> Headers:
        if identity is None:
            return ()
        match self.durable_spelling:
            case DurableSpelling.CLIENT_ID_AND_NAME:
                return (("activemq.subscriptionName", identity.name),)
            case DurableSpelling.SUBSCRIPTION_ID:
                return (("durable", "true"), ("auto-delete", "false"))


OURS: Final = Dialect()
