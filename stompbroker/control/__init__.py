"""Everything one can ask of, or do to, a running broker.

Law: one interface, used by the command line through the control socket, and by HTTP; neither knows the other.
Neighbours import from here only.
"""

from stompbroker.control.backlog import BacklogLook
from stompbroker.control.control import Control
from stompbroker.control.errors import ControlError, NotFound, Unavailable
from stompbroker.control.kept import stored_messages
from stompbroker.control.looking import Looking
from stompbroker.control.sampling import Sample, Sampler
from stompbroker.control.seen import Seen, SeenLedger
from stompbroker.control.top_n import Best

__all__ = [
    "BacklogLook",
    "Best",
    "Control",
    "ControlError",
    "Looking",
    "NotFound",
    "Sample",
    "Sampler",
    "Seen",
    "SeenLedger",
    "Unavailable",
    "stored_messages",
]
