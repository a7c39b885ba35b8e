"""What spotty starts: `python -m stompbroker.spotty.child PARENT serve …`, a `serve` that ends with process PARENT.

On Linux the kernel kills it when spotty ends in whatever way, also while it is stopped; elsewhere nothing does that.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """Be killed when the parent ends, or end now if it has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, has ended")


if __name__ == "__main__":
    _, number, *sys.argv[1:] = sys.argv
    die_with(int(number))
    runpy.run_module("stompbroker", run_name="__main__", alter_sys=True)
