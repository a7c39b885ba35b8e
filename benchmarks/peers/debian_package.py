"""Which version of a Debian package is on this machine.

Asks the package system and starts nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from benchmarks.peers.peer import Installed, Missing

if TYPE_CHECKING:
    from pathlib import Path


def installed_package(package: str, *, needs: Path) -> Installed | Missing:
    """Present if `needs`, the file to run, exists."""
    if not needs.exists():
        return Missing(f"apt-get install --no-install-recommends {package} ({needs} is not there)")
    if shutil.which("dpkg-query") is None:
        return Installed("of unknown version")
    asked = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", package], capture_output=True, text=True, check=False
    )
    return Installed(asked.stdout.strip() or "of unknown version")
