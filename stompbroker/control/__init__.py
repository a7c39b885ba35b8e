"""Everything one can ask of, or do to, a running broker.

Law: one interface, used by the command line through the control socket, and by HTTP; neither knows the other.
Neighbours import from here only.
"""

from stompbroker.control.backlog import BacklogLook
from stompbroker.control.control import BrokerParts, Control
from stompbroker.control.kept import stored_messages
from stompbroker.control.ledger_methods import LedgerParts
from stompbroker.control.listing import Best
from stompbroker.control.looking import Looking
from stompbroker.control.request import ControlError, NotFound, Unavailable
from stompbroker.control.sampling import COUNTERS, Sample, Sampler, counters_of

__all__ = [
    "COUNTERS",
    "BacklogLook",
    "Best",
    "BrokerParts",
    "Control",
    "ControlError",
    "LedgerParts",
    "Looking",
    "NotFound",
    "Sample",
    "Sampler",
    "Unavailable",
    "counters_of",
    "stored_messages",
]
