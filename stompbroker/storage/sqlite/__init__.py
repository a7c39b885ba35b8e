"""A store in an SQLite file in the data directory, and the process that writes to it."""

from stompbroker.storage.sqlite.backend import SqliteBackend
from stompbroker.storage.sqlite.batch_wire import Encoded, encode
from stompbroker.storage.sqlite.engine import database_file, reading_engine, writing_engine
from stompbroker.storage.sqlite.writing_process import (
    HEAD,
    Question,
    WritingProcess,
    answered,
    forked_writing_process,
    question,
)

__all__ = [
    "HEAD",
    "Encoded",
    "Question",
    "SqliteBackend",
    "WritingProcess",
    "answered",
    "database_file",
    "encode",
    "forked_writing_process",
    "question",
    "reading_engine",
    "writing_engine",
]
