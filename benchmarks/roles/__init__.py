"""The parts of the load generator, each a function that runs in a process of its own.

Law: a role gets a frozen assignment and its `ChildEnd`, connects, says that it is ready, does its work when told, and
returns a frozen report. A role knows an address and STOMP; it prints nothing and judges nothing but `Broken`.
Instants are `time.monotonic`, which on Linux and macOS all processes share.
"""
