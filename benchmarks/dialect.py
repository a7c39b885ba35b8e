"""How a broker wants the same said.

Law: frozen data and the headers that follow from it. What is common to all of STOMP 1.2 stands in `frames`; here is
where brokers differ: who logs in, what makes a subscription durable, what makes a message outlive a restart, how many
messages may be unacknowledged. A dialect that is never set says what our own broker needs, which is nothing but STOMP.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.durable_identity import DurableIdentity

#: Header lines in their order; nothing in them needs escaping.
Headers = tuple[tuple[str, str], ...]


class DurableSpelling(Enum):
    """What makes a subscription durable, and tells it from others."""

    CLIENT_ID_AND_NAME = "client-id on CONNECT, activemq.subscriptionName on SUBSCRIBE"
    SUBSCRIPTION_ID = "durable:true and auto-delete:false on SUBSCRIBE, with an id that nobody else has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    #: The `host` of CONNECT; without one it is the host that the socket connects to.
    virtual_host: str | None = None
    #: Of CONNECT, besides.
    login: Headers = ()
    durable_spelling: DurableSpelling = DurableSpelling.CLIENT_ID_AND_NAME
    #: Of a SEND that has to be on disk before its receipt.
    stored: Headers = ()
    #: Of a SUBSCRIBE whose messages are acknowledged one by one.
    prefetch: Headers = ()

    def of_connect(self, identity: DurableIdentity | None) -> Headers:
        if identity is None or self.durable_spelling is not DurableSpelling.CLIENT_ID_AND_NAME:
            return self.login
        return (*self.login, ("client-id", identity.client_id))

    def subscription_id(self, identity: DurableIdentity | None) -> str:
        """Each connection has one subscription; only a durable one may need an id that is known elsewhere."""
        if identity is None or self.durable_spelling is not DurableSpelling.SUBSCRIPTION_ID:
            return "0"
        return f"{identity.client_id}.{identity.name}"

    def of_subscribe(self, identity: DurableIdentity | None, *, acknowledges: bool) -> Headers:
        return (*self._durable(identity), *(self.prefetch if acknowledges else ()))

    def of_unsubscribe(self, identity: DurableIdentity) -> Headers:
        """The headers that end a durable subscription for good; without them it is only detached."""
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
