"""Where log lines go and what they look like.

Law: our lines (structlog) and those of libraries (`logging`) end in one handler on stderr: text on a terminal, one JSON
object a line otherwise. It is the standard library's handler, since that swallows its own failures: a line that cannot
be written (`stompbroker serve 2>&1 | head`) must not bring the broker down.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

import structlog

from stompbroker.config import LogFormat, LogLevel
from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

#: Fields that structlog makes itself, and that have lines.
_WITH_LINES = ("exception", "stack")


def configure(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Set up logging for the process, to stderr unless a stream is given. A later call replaces an earlier one."""
    stream = stream or sys.stderr
    is_terminal = stream.isatty()
    for_people = log_format is LogFormat.HUMAN or (log_format is LogFormat.AUTO and is_terminal)
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Plain tracebacks, not structlog's dicts: those carry local variables, and with them message bodies.
    last: list[Processor] = [structlog.processors.format_exc_info]
    if for_people:
        # https://no-color.org: set to anything but the empty text means no colours.
        colors = is_terminal and not os.environ.get("NO_COLOR")
        renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
        last += [_make_readable, renderer]
    else:
        last.append(structlog.processors.JSONRenderer())

    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.name)
    # It logs each step of a migration; our caller logs the outcome.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level.name),
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Not cached, so that a second call (and a test's capture) takes effect on loggers made before it.
        cache_logger_on_first_use=False,
    )


def _make_readable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters: clients choose destinations and ids, which could move a terminal's cursor or pretend
    to be further lines. JSON escapes them by itself."""
    return {
        key: readable(value, keeps_lines=key in _WITH_LINES) if isinstance(value, str) else value
        for key, value in event.items()
    }
