"""Where the files of the lake lie, how they come and go, and the order to write some.

Law: knows paths and days, and nothing of records. A file is there whole or not at all: on a file system it is written
under a temporary name and renamed; an object is made of a complete file. `_complete_until.json` says up to when
everything that was settled is there.

    LAKE/deliveries/dt=2026-11-16/deliveries-….parquet
    LAKE/backlog/dt=2026-11-16/backlog-….parquet
    LAKE/_complete_until.json
    LAKE/marts/TABLE/dt=2026-11-16/                          made by a report
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import unquote, urlsplit

from stompbroker.clock import iso_time
from stompbroker.errors import OperatorError
from stompbroker.storage import ExportRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.fs

COMPLETE_UNTIL: Final = "_complete_until.json"
#: Tables that a report makes.
MARTS: Final = "marts"

_EPOCH: Final = date(1970, 1, 1)
_PARTITION: Final = re.compile(r"dt=(\d{4}-\d{2}-\d{2})", re.ASCII)
#: How much of a complete file is sent at once.
_CHUNK_BYTES: Final = 8 * 1024 * 1024


@final
class Kind(Enum):
    """A table of the lake."""

    DELIVERIES = "deliveries"
    BACKLOG = "backlog"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    """What the exporting process is told: JSON on its standard input, since no command line may show a password."""

    #: As in the settings.
    database: str
    data: str
    lake: str
    store_id: str
    exports: Sequence[ExportRow] = ()
    #: What the lake says when all files are there.
    complete_until_ns: int = 0
    exported_at_ns: int = 0
    #: Remove unfinished files and everything before this day; None: neither.
    delete_before_day: int | None = None

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, given: bytes) -> ExportOrder:
        fields = json.loads(given)
        fields["exports"] = [ExportRow(*row) for row in fields["exports"]]
        return cls(**fields)


class FileWritten(NamedTuple):
    """What the exporting process answers: a line on its standard output for each file."""

    export: int
    #: Within the lake.
    path: str
    records: int

    def as_line(self) -> str:
        return json.dumps(list(self))

    @classmethod
    def read_all(cls, output: bytes) -> list[FileWritten]:
        """Of whole lines: a killed process may leave half a line."""
        return [cls(*json.loads(line)) for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


def partition(kind: Kind, day: int) -> str:
    return f"{kind.value}/dt={_EPOCH + timedelta(days=day)}"


def open_lake(place: str, store_id: str) -> Lake:
    """A path, `file://…` or `s3://…`; `store_id` says whose unfinished files are ours. Raises OperatorError."""
    if "://" not in place:
        return LocalLake(Path(place), store_id)
    parts = urlsplit(place)
    if parts.scheme == "file":
        return LocalLake(Path(unquote(parts.path)), store_id)
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        filesystem, root = FileSystem.from_uri(place)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OperatorError(f"The lake {place} cannot be used: {_reason(error)}.") from error
    return Lake(filesystem, root)


class Lake:
    """On a pyarrow file system where nothing is renamed: an object appears when all of it was sent."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """A file that takes its place, or another's that was there, when the block ends. Raises OperatorError."""
        target = f"{self._root}/{path}"
        with _translated(target), tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            self._filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            stream = self._filesystem.open_output_stream(target)
            while chunk := file.read(_CHUNK_BYTES):
                stream.write(chunk)
            stream.close()

    def sweep(self) -> None:
        """Remove unfinished files of processes that were killed. Here they are invisible, and the object store's own
        rules say when they go."""

    def note_complete(self, complete_until_ns: int, exported_at_ns: int) -> None:
        """Everything that was settled before that time is there. Raises OperatorError."""
        said = {"complete_until": _as_text(complete_until_ns), "exported_at": _as_text(exported_at_ns)}
        with self.writing(COMPLETE_UNTIL) as file:
            file.write(json.dumps(said).encode() + b"\n")

    def delete_before(self, day: int) -> list[str]:
        """Remove the directories of earlier days, and return them. Raises OperatorError."""
        tables = [kind.value for kind in Kind] + [f"{MARTS}/{name}" for name in self._directories(MARTS)]
        first_kept = _EPOCH + timedelta(days=day)
        gone = []
        for table in tables:
            for name in self._directories(table):
                found = _PARTITION.fullmatch(name)
                if found is not None and _is_before(found[1], first_kept):
                    gone.append(f"{table}/{name}")
                    with _translated(gone[-1]):
                        self._filesystem.delete_dir(f"{self._root}/{gone[-1]}")
        return gone

    def _directories(self, path: str) -> list[str]:
        """The names of the directories in this one; none if it does not exist."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(f"{self._root}/{path}", allow_not_found=True)
        with _translated(path):
            found = self._filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type is FileType.Directory)


@final
class LocalLake(Lake):
    """In a directory, where a file is renamed when it is whole and on disk."""

    def __init__(self, directory: Path, store_id: str) -> None:
        from pyarrow.fs import LocalFileSystem

        super().__init__(LocalFileSystem(), str(directory.absolute()))
        self._directory = directory
        self._store_id = store_id

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        target = self._directory / path
        # The process id, because the exporter of a killed broker may be writing the same file.
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with _translated(target):
            try:
                self._make_directory(target.parent)
                with unfinished.open("wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.rename(target)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
            _sync_directory(target.parent)

    def _make_directory(self, directory: Path) -> None:
        """Durably: the name of a directory is on disk when its parent is synced."""
        if not directory.is_dir():
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            _sync_directory(directory.parent)

    def sweep(self) -> None:
        ours = re.compile(rf"\.[a-z]+-{re.escape(self._store_id)}-.*\.tmp")
        with _translated(self._directory):
            for kind in Kind:
                for unfinished in (self._directory / kind.value).glob("dt=*/.*.tmp"):
                    if ours.fullmatch(unfinished.name):
                        unfinished.unlink(missing_ok=True)


@contextmanager
def _translated(place: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # pyarrow's are, too
        raise OperatorError(f"The lake cannot be written at {place}: {_reason(error)}.") from error


def _reason(error: Any) -> str:
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_text(at_ns: int) -> str:
    return iso_time(at_ns).replace("+00:00", "Z")


def _is_before(text: str, first_kept: date) -> bool:
    try:
        return date.fromisoformat(text) < first_kept
    except ValueError:
        return False
