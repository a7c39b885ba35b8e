"""The parts of the load generator, each a function that runs in its own process.

A role gets a frozen assignment and its `ChildEnd`, connects, says that it is ready, works when told, and returns a
frozen report. It knows an address and STOMP, prints nothing, and judges only what is `Broken`. Times are
`time.monotonic`, which all processes share on Linux and macOS.
"""
