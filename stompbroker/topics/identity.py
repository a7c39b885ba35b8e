"""What a durable subscription is known by.

Law: a value. Clients that repeat their SUBSCRIBE word for word mean the same subscription; everything else that may
change between two of them (ack mode, credit) is not part of it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, final

__all__ = ["Identity", "IdentityKind"]


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
    def key(self) -> str:
        """How people see and name it: unique, and short enough to be typed."""
        if self.kind is IdentityKind.NAMED:
            return f"{_escaped(self.scope)}/{_escaped(self.name)}"
        return f"{_escaped(self.name)} @ {_escaped(self.scope)}"


def _escaped(text: str) -> str:
    """Without what separates the parts of a key, so that no two identities share one."""
    return text.replace("%", "%25").replace("/", "%2F").replace("@", "%40")
