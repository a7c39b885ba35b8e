"""How subscriptions that can be found again are known: durable ones, groups, and those of queues.

Law: names and nothing else. Two identities never have the same key, whatever clients choose.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.visible_text import visible

if TYPE_CHECKING:
    from stompbroker.delivery.destination import Pattern


@final
class IdentityKind(Enum):
    #: By a name within a client id; what it subscribes to cannot change.
    NAMED = "named"
    #: By an id within what it subscribes to.
    ADDRESSED = "addressed"
    #: A group, by its name within what it subscribes to. It belongs to nobody: permissions say who may join.
    GROUP = "group"
    #: The group of a queue's consumers, by the queue's name. The same holds for it.
    QUEUE = "queue"


class Identity(NamedTuple):
    """How a durable subscription is known: a SUBSCRIBE with the same identity resumes it."""

    #: The user it belongs to; empty if it was made without login.
    owner: str
    kind: IdentityKind
    #: The client id, empty where the name stands alone; or the canonical pattern.
    scope: str
    name: str

    @property
    def is_shared_by_all(self) -> bool:
        """Whether permissions alone say who may attach, and no name or owner."""
        return self.kind in (IdentityKind.GROUP, IdentityKind.QUEUE)

    @property
    def client_id(self) -> str | None:
        """Whose it is, if it is known by a name within a client id."""
        return self.scope if self.kind is IdentityKind.NAMED and self.scope else None

    @property
    def key(self) -> str:
        """Its unique name for people, which can be pasted into a command: `CLIENT-ID/NAME` or `NAME @ PATTERN`; with an
        owner `OWNER/CLIENT-ID/NAME` or `NAME @ PATTERN of OWNER`; of a group `group:NAME @ PATTERN`; of a queue
        `/queue/NAME`."""
        if self.kind is IdentityKind.QUEUE:
            return f"/queue/{visible(self.name)}"
        owner = visible(self.owner, also="/")
        if self.kind is IdentityKind.NAMED:
            key = f"{visible(self.scope, also='/')}/{visible(self.name, also='/')}"
            key = f"{owner}/{key}" if owner else key
        else:
            key = f"{visible(self.name)} @ {visible(self.scope)}" + (f" of {owner}" if owner else "")
            if self.kind is IdentityKind.GROUP:
                key = f"group:{key}"
            elif key.startswith("group:"):
                key = f"%67{key[1:]}"
        return f"%2D{key[1:]}" if key.startswith("-") else key


def queue_identity(name: Pattern) -> Identity:
    return Identity("", IdentityKind.QUEUE, "", name.name)


@final
@dataclass(slots=True, eq=False)
class Durability:
    """What a durable subscription has and a transient one has not."""

    identity: Identity
    #: Its number in the store.
    store_id: int
    _: KW_ONLY
    created_at_ns: int
    #: When a consumer last came or went.
    last_seen_at_ns: int
    #: Whether somebody was told that nobody attaches to it.
    is_warned_of: bool = False
    #: When one connection took it over from another that was there; the latest few times.
    taken_over_at_ns: list[int] = field(default_factory=list)
