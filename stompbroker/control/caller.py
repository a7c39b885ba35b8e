"""Who asks, and which part of the broker that is.

Law: the role `viewer` may look, `operator` may look and change, nobody else may ask. A user with one of these roles, no
pattern and no other role has the whole broker; so has one with `>` and `DLQ.>`. Everybody else is restricted: `read`
patterns say which destinations are seen, `manage` patterns which are changed, and what concerns the whole broker is
refused. What a caller does not see is answered as if it did not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.access import ANYBODY, EVERYTHING, Right
from stompbroker.control.request import Forbidden

if TYPE_CHECKING:
    from stompbroker.access import Grant
    from stompbroker.delivery import Pattern


@final
@dataclass(frozen=True, slots=True)
class Caller:
    """Equal if the grant is the same: then the answers are."""

    grant: Grant
    is_restricted: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        grant = self.grant
        needed = (Right.READ, Right.MANAGE) if self.is_operator else (Right.READ,)
        has_everything = all(grant.allows(right, each) for right in needed for each in EVERYTHING)
        object.__setattr__(self, "is_restricted", not grant.is_unbounded and not has_everything)

    @property
    def is_admitted(self) -> bool:
        return not self.grant.roles.isdisjoint(("viewer", "operator"))

    @property
    def is_operator(self) -> bool:
        return "operator" in self.grant.roles

    def sees(self, destination: Pattern) -> bool:
        return not self.is_restricted or self.grant.allows(Right.READ, destination)

    def changes(self, *destinations: Pattern) -> bool:
        """Whether it may change what is at all of these."""
        return self.is_operator and (
            not self.is_restricted or all(self.grant.allows(Right.MANAGE, each) for each in destinations)
        )

    def check_changes(self, *destinations: Pattern) -> None:
        """Raises Forbidden."""
        if not self.is_operator:
            raise Forbidden(f"this needs the role operator, which {self.grant.user} does not have")
        for each in destinations:
            if not self.changes(each):
                raise Forbidden(f"{self.grant.user} has no permission to manage {each}")

    def check_whole(self) -> None:
        """Raises Forbidden."""
        if self.is_restricted:
            raise Forbidden(
                f"this concerns the whole broker, and {self.grant.user} is restricted to its patterns; it needs a role "
                "and no patterns"
            )


#: Who reaches the control socket, which the file system protects.
OPERATOR: Final = Caller(ANYBODY)
