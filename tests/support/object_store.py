"""A bucket in an object store that speaks S3, for tests.

Law: one server a test process, with everything in memory, started when first asked for; `make test` installs it.
Without it tests are skipped on a laptop and fail in CI. Each bucket is new, so that tests do not meet. Any keys do: it
is nobody's store.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, final

import pytest
from pyarrow import fs

from tests.support.broker_process import wait_until

_PROGRAM: Final = Path(__file__).parents[2] / ".peers" / "object-store" / "bin" / "moto_server"
_ANNOUNCED: Final = re.compile(r"Running on http://(127\.0\.0\.1:\d+)")
_REGION: Final = "us-east-1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    name: str
    filesystem: fs.FileSystem
    _endpoint: str

    def address(self, path: str) -> str:
        """As in the settings."""
        return f"s3://{self.name}/{path}?region={_REGION}&scheme=http&endpoint_override={self._endpoint}"

    def files(self) -> dict[str, bytes]:
        """What is in it, by path within the bucket."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.name, recursive=True))
        return {
            entry.path.removeprefix(f"{self.name}/"): bytes(self.filesystem.open_input_stream(entry.path).read())
            for entry in found
            if entry.type == fs.FileType.File
        }


def new_bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    endpoint = _endpoint()
    keys = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "any-secret", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    name = f"test-{uuid.uuid4().hex}"
    filesystem = fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region=_REGION, allow_bucket_creation=True, background_writes=False
    )
    filesystem.create_dir(name)
    return Bucket(name=name, filesystem=filesystem, _endpoint=endpoint)


@cache
def _endpoint() -> str:
    """Where the server listens, which ends with us."""
    if not _PROGRAM.exists():
        reason = f"no object store: {_PROGRAM} is not installed; make test does it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # A file, not a pipe: it tells of every request, and nobody reads that.
    with tempfile.NamedTemporaryFile("r", prefix="object-store-") as said, Path(said.name).open("w") as writing:
        server = subprocess.Popen(
            [_PROGRAM, "--host", "127.0.0.1", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writing,
        )
        atexit.register(_end, server)
        wait_until(lambda: _ANNOUNCED.search(Path(said.name).read_text()), "the line that says where it listens")
        found = _ANNOUNCED.search(said.read())
        assert found is not None
        return found[1]


def _end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()
