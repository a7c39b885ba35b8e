"""A bucket in an object store that speaks S3, for tests.

Law: whatever server `STOMPBROKER_TEST_S3` names as HOST:PORT, over plain HTTP; none is started here. Without it, tests
are skipped. Each bucket is new, so that tests do not meet. Any keys do: it is nobody's store.

    moto_server -H 127.0.0.1 -p 5000 &
    STOMPBROKER_TEST_S3=127.0.0.1:5000 make test ARGS="-k s3"
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import Final, final

import pytest
from pyarrow import fs

__all__ = ["Bucket", "new_bucket"]

ENDPOINT: Final = "STOMPBROKER_TEST_S3"
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
    endpoint = os.environ.get(ENDPOINT)
    if not endpoint:
        pytest.skip(f"needs an S3 server: {ENDPOINT}=HOST:PORT")
    keys = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "any-secret", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    name = f"test-{uuid.uuid4().hex}"
    filesystem = fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region=_REGION, allow_bucket_creation=True, background_writes=False
    )
    filesystem.create_dir(name)
    return Bucket(name=name, filesystem=filesystem, _endpoint=endpoint)
