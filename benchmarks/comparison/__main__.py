"""`python -m benchmarks.comparison` runs the command line."""

import signal
import sys
from contextlib import suppress

from benchmarks.comparison.command_line import main

if __name__ == "__main__":  # the children that multiprocessing spawns import this module too
    # On SIGTERM, end the broker that it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)  # the exit code shells use after Ctrl-C
