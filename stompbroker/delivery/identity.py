"""How a durable subscription is identified.

Law: a value. A SUBSCRIBE with the same identity resumes the subscription, whatever its ack mode or credit.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, final

from stompbroker.visible_text import visible


@final
class IdentityKind(Enum):
    #: By a name within a client id; what it subscribes to cannot change.
    NAMED = "named"
    #: By an id within what it subscribes to.
    ADDRESSED = "addressed"


class Identity(NamedTuple):
    #: Empty until there is login.
    owner: str
    kind: IdentityKind
    #: The client id, empty where the name stands alone; or the canonical pattern.
    scope: str
    name: str

    @property
    def client_id(self) -> str | None:
        """Whose it is, if it is known by a name within a client id."""
        return self.scope if self.kind is IdentityKind.NAMED and self.scope else None

    @property
    def key(self) -> str:
        """Its unique name for people, which can be pasted into a command: `CLIENT-ID/NAME`, or `NAME @ PATTERN`."""
        if self.kind is IdentityKind.NAMED:
            key = f"{visible(self.scope, also='/')}/{visible(self.name, also='/')}"
        else:
            key = f"{visible(self.name)} @ {visible(self.scope)}"
        return f"%2D{key[1:]}" if key.startswith("-") else key
