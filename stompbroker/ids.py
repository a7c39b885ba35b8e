"""Numbers that must not be mixed up, each with a type of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    #: Position of a message in its topic's log; the first message of a topic has offset 0.
    Offset = NewType("Offset", int)
else:
    # Half a dozen are made for each message that comes alone, and a call of a `NewType` runs Python code. mypyc takes
    # this branch for unreachable, so the module is not compiled.
    Offset = int
FIRST_OFFSET: Final = Offset(0)
#: Running number of a client connection since the broker started.
ConnectionId = NewType("ConnectionId", int)
