"""Where the lake and the results are: a path on this machine, or a URI that pyarrow and Spark both understand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from pyarrow import fs


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory."""

    filesystem: fs.FileSystem
    #: As `filesystem` expects it.
    path: str
    #: What turns a path into a URI for Spark, such as `file://`.
    scheme: str

    def uri_of(self, path: str) -> str:
        """Spark's URI of a path in this filesystem."""
        return f"{self.scheme}{path}"

    def listing(self, inside: str) -> list[fs.FileInfo]:
        """The entries of a directory, sorted; none if there is no such directory."""
        selector = fs.FileSelector(f"{self.path}/{inside}", allow_not_found=True)
        return sorted(self.filesystem.get_file_info(selector), key=lambda entry: str(entry.path))

    def read_text(self, name: str) -> str | None:
        """The file's content; None if there is no such file."""
        path = f"{self.path}/{name}"
        if self.filesystem.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self.filesystem.open_input_stream(path) as stream:
            return bytes(stream.read()).decode(errors="replace")


def place_of(where: str) -> Place:
    """`where` is a path or a URI.

    Raises:
        OSError, pyarrow.ArrowException: pyarrow has no filesystem of that name.
    """
    if "://" not in where:
        return Place(filesystem=fs.LocalFileSystem(), path=str(Path(where).resolve()), scheme="file://")
    filesystem, path = fs.FileSystem.from_uri(where)
    return Place(filesystem=filesystem, path=path.rstrip("/"), scheme=f"{where.partition('://')[0]}://")
