"""Where log lines go and what they look like.

Law: everything that is logged, by us through structlog or by a library through `logging`, ends in one handler on
stderr: lines for people on a terminal, one JSON object a line otherwise. stdout belongs to what a command prints.

Everything goes through the standard library's handler because it swallows its own failures: a log line that cannot
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

__all__ = ["configure"]

_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


#: What structlog makes itself.
_WITH_LINES = ("exception", "stack")


def configure(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Set up logging for the process; a later call replaces an earlier one. `stream` is stderr unless given."""
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
    last: list[Processor]
    if for_people:
        # https://no-color.org: set to anything but the empty text means no colours.
        colors = is_terminal and not os.environ.get("NO_COLOR")
        renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
        last = [structlog.processors.format_exc_info, _make_readable, renderer]
    else:
        # Plain tracebacks, not structlog's dicts: those carry local variables, and with them message bodies.
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]

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
    root.setLevel(_LEVELS[level])
    # It tells how it goes about things; what it did is told by who asked for it.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Not cached, so that a second call (and a test's capture) takes effect on loggers made before it.
        cache_logger_on_first_use=False,
    )


def _make_readable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Clients choose destinations and ids: on a terminal these could otherwise move the cursor or pretend to be further
    lines. Tracebacks quote them, and have lines. JSON escapes all of it by itself."""
    return {
        key: readable(value, keeps_lines=key in _WITH_LINES) if isinstance(value, str) else value
        for key, value in event.items()
    }
