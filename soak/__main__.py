"""`python -m soak` runs the command line."""

import sys
from contextlib import suppress

from soak.command_line import main

if __name__ == "__main__":  # the children that multiprocessing spawns import this module too
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)  # the exit code shells use after Ctrl-C
