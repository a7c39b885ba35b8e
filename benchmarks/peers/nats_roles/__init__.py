"""The publisher and the subscriber of the load generator, in the protocol of NATS.

The same assignments, reports and clocks as the STOMP roles, and their code where the protocol does not matter. Frames
are encoded before the clock starts, and nothing is done per message but counting and acknowledging.
"""
