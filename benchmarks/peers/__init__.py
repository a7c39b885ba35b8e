"""The brokers that are compared, each in a file of its own.

Code outside goes through `PEERS`, ours first, and does not know which brokers there are.
"""

from typing import Final

from benchmarks.peers.activemq import ACTIVEMQ
from benchmarks.peers.coilmq import COILMQ
from benchmarks.peers.nats import JETSTREAM, NATS, RECENT_JETSTREAM, RECENT_NATS
from benchmarks.peers.ours import OURS, OURS_ON_POSTGRES
from benchmarks.peers.peer import Peer
from benchmarks.peers.rabbitmq import RABBITMQ

__all__ = ["PEERS"]

PEERS: Final[tuple[Peer, ...]] = (
    OURS,
    OURS_ON_POSTGRES,
    RABBITMQ,
    ACTIVEMQ,
    COILMQ,
    NATS,
    RECENT_NATS,
    JETSTREAM,
    RECENT_JETSTREAM,
)
