"""A broker that goes away and comes back, so that people can test their clients.

Law: knows a broker from outside only: its process, its first lines, and the bytes of its connections.
"""

from stompbroker.spotty.plan import MODES, Mode, Outage, Span, outages_of, read_log
from stompbroker.spotty.running import Spotty, run_spotty

__all__ = ["MODES", "Mode", "Outage", "Span", "Spotty", "outages_of", "read_log", "run_spotty"]
