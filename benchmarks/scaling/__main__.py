"""`python -m benchmarks.scaling` runs the command line."""

import signal
import sys
from contextlib import suppress

from benchmarks.scaling.command_line import main

if __name__ == "__main__":  # the children that multiprocessing spawns import this module too
    # Asked to end by its id, it ends the broker that it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)  # as a shell says of a program that Ctrl-C has ended
