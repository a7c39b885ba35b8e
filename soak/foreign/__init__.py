"""Our client and our bridges against RabbitMQ and ActiveMQ, which are started for the run and killed.

`brokers` knows how they differ, `checks` tries one ability of the client after the other, `kills` is the client while
they are killed, `bridging` has bridges between them and ours, and `run` shows what was found.
"""

from soak.foreign.run import NAMES, run_foreign

__all__ = ["NAMES", "run_foreign"]
