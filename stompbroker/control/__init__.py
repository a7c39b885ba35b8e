"""Everything one can ask of, or do to, a running broker. Neighbours import from here only."""

from stompbroker.control.bridge_methods import left_by_bridges
from stompbroker.control.caller import OPERATOR, Caller
from stompbroker.control.control import METHODS, Control
from stompbroker.control.kept import KeptMessages, stored_messages
from stompbroker.control.looking import Looking, TopN
from stompbroker.control.parts import BrokerParts, LedgerParts
from stompbroker.control.records import Record
from stompbroker.control.request import ControlError, Forbidden, NotFound, Param, Unavailable
from stompbroker.control.sampling import Sample, Sampler

__all__ = [
    "METHODS",
    "OPERATOR",
    "BrokerParts",
    "Caller",
    "Control",
    "ControlError",
    "Forbidden",
    "KeptMessages",
    "LedgerParts",
    "Looking",
    "NotFound",
    "Param",
    "Record",
    "Sample",
    "Sampler",
    "TopN",
    "Unavailable",
    "left_by_bridges",
    "stored_messages",
]
