"""The publisher and the subscriber of the load generator, in the protocol of NATS.

Law: the same assignments, reports and clocks as the STOMP roles, and their parts wherever the protocol does not matter;
frames are encoded before the clock starts, and nothing is done per message but what counting and acknowledging needs.
"""
