"""Memory that was freed is used again, instead of being given to the kernel and asked for page by page."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

#: Four buffers of 1 MiB, as for one large body, again and again; prints the page faults for each MiB.
BODIES = """
import resource, sys
from stompbroker.heap import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for round_number in range(60):
    if round_number == 10:
        before = faults()
    bodies = [b"x" * 2**20 for _ in range(4)]
    del bodies
print((faults() - before) // 200)
"""

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc can be told")


def faults_per_mebibyte(how: str) -> int:
    found = subprocess.run([sys.executable, "-c", BODIES, how], capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_large_bodies_do_not_cost_page_faults() -> None:
    assert faults_per_mebibyte("kept") < 5


def test_without_being_told_the_allocator_gives_all_of_it_back() -> None:
    """The reason for telling it: if this fails, there is none."""
    assert faults_per_mebibyte("given back") > 100
