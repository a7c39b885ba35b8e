"""Bridges: what comes from another broker and goes there, and where that stands.

Law: synchronous, without I/O. `plan` is what the operator wants, `passage` the headers of a message on its way, and
`crossing` one direction of a bridge: what is on its way, what may be settled at its source, what is shown of it. The
actor `actors/bridge.py` is a client of both brokers and does what these say.
"""

from stompbroker.bridges.crossing import (
    Crossing,
    CrossingState,
    Flow,
    Passing,
    Settlement,
    Verdict,
    crossings_of,
    in_short,
)
from stompbroker.bridges.passage import Passage, onward
from stompbroker.bridges.plan import BridgePlan, Direction, RemoteKind

__all__ = [
    "BridgePlan",
    "Crossing",
    "CrossingState",
    "Direction",
    "Flow",
    "Passage",
    "Passing",
    "RemoteKind",
    "Settlement",
    "Verdict",
    "crossings_of",
    "in_short",
    "onward",
]
