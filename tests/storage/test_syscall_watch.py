"""The watch sees every call and can make it fail."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from tests.storage.syscall_watch import SYNCS, WRITES, watched

if TYPE_CHECKING:
    from pathlib import Path


def test_calls_are_seen_in_their_order(tmp_path: Path) -> None:
    def work() -> None:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(b"a")
            os.fdatasync(file.fileno())
            os.pwrite(file.fileno(), b"b", 0)
            os.fsync(file.fileno())

    assert watched(work, SYNCS + WRITES) == ["write", "fdatasync", "pwrite64", "fsync"]
    assert (tmp_path / "file").read_bytes() == b"b"


def test_other_calls_and_other_threads_are_left_alone(tmp_path: Path) -> None:
    def work() -> None:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(b"a")

    assert watched(work, SYNCS) == []
    with (tmp_path / "file").open("rb") as file:
        os.fsync(file.fileno())


def test_a_call_can_be_made_to_fail(tmp_path: Path) -> None:
    def work() -> None:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(b"a")

    with pytest.raises(OSError, match="No space left") as error:
        watched(work, WRITES, lambda _: errno.ENOSPC)

    assert error.value.errno == errno.ENOSPC
    assert (tmp_path / "file").read_bytes() == b""
