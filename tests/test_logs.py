"""Log lines, as the process that reads them sees them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from datetime import UTC, datetime

from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment, run_prepared

SCRIPT = """
import logging, sys, warnings
from stompbroker import logs
from stompbroker.config import LogFormat, LogLevel
import structlog
log = structlog.get_logger()  # before configure, as modules have it
logs.configure(LogLevel(sys.argv[1]), LogFormat(sys.argv[2]))
{body}
"""


def logged(body: str, *, level: str = "info", log_format: str = "json") -> list[str]:
    """The lines on stderr of a process that logs; stdout must stay empty."""
    done = run_prepared([*PYTHON, "-c", SCRIPT.format(body=body), level, log_format])
    assert (done.returncode, done.stdout) == (0, b"")
    return done.stderr.decode().splitlines()


def logged_on_terminal(body: str, *, log_format: str = "auto", **environment: str) -> str:
    controller, terminal = pty.openpty()
    try:
        command = [*PYTHON, "-c", SCRIPT.format(body=body), "info", log_format]
        colourless = {key: value for key, value in clean_environment().items() if key != "NO_COLOR"}
        process = PreparedProcess[str](command, stderr=terminal, env=colourless | {"TERM": "xterm"} | environment)
        assert process.wait() == 0
        return os.read(controller, 65536).decode()
    finally:
        os.close(controller)
        os.close(terminal)


def test_lines_are_json_with_a_utc_time_when_nobody_looks() -> None:
    before = datetime.now(UTC)

    (line,) = logged("log.info('listening', port=61613)", log_format="auto")

    event = json.loads(line)
    at = event.pop("timestamp")
    assert at.endswith("Z")
    assert before <= datetime.fromisoformat(at) <= datetime.now(UTC)
    assert event == {"event": "listening", "level": "info", "logger": "__main__", "port": 61613}


def test_lines_on_a_terminal_are_for_people_and_in_colour() -> None:
    text = logged_on_terminal("log.info('listening', port=61613)")

    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:.]+Z \[info +\] listening .*port=61613", plain)


def test_no_color_is_respected() -> None:
    assert "\x1b[" not in logged_on_terminal("log.info('listening')", NO_COLOR="1")


def test_json_can_be_asked_for_on_a_terminal() -> None:
    assert json.loads(logged_on_terminal("log.info('listening')", log_format="json"))["event"] == "listening"


def test_lines_for_people_can_be_asked_for_without_a_terminal() -> None:
    (line,) = logged("log.info('listening', port=61613)", log_format="human")

    assert "\x1b[" not in line
    assert "listening" in line
    assert "port=61613" in line


def test_less_important_lines_are_left_out() -> None:
    body = "log.debug('d'); log.info('i'); log.warning('w'); log.error('e')"

    events = {
        level: [json.loads(line)["event"] for line in logged(body, level=level)] for level in ("debug", "warning")
    }

    assert events == {"debug": ["d", "i", "w", "e"], "warning": ["w", "e"]}


def test_libraries_that_use_logging_end_in_the_same_place() -> None:
    body = (
        "logging.getLogger('library').warning('odd %s', 'thing', extra={'peer': 'x'}); logging.getLogger().debug('no')"
    )

    (line,) = logged(body)

    event = json.loads(line)
    assert (event["event"], event["level"], event["logger"], event["peer"]) == ("odd thing", "warning", "library", "x")
    assert event["timestamp"].endswith("Z")


def test_warnings_are_log_lines_too() -> None:
    (line,) = logged("warnings.simplefilter('always'); warnings.warn('a coroutine was never awaited', RuntimeWarning)")

    assert "a coroutine was never awaited" in json.loads(line)["event"]


def test_a_traceback_is_one_json_line_without_local_variables() -> None:
    body = """
def fail():
    secret = "hun" + "ter2"
    1 / 0
try:
    fail()
except ZeroDivisionError:
    log.exception("failed")
"""
    (line,) = logged(body)

    assert "ZeroDivisionError" in json.loads(line)["exception"]
    assert "hunter2" not in line


def test_context_is_part_of_every_line() -> None:
    (line,) = logged("structlog.contextvars.bind_contextvars(connection=7); log.info('hello')")

    assert json.loads(line)["connection"] == 7


def test_bytes_and_objects_do_not_break_json() -> None:
    (line,) = logged(r"log.info('odd', body=b'\xff\n', thing=object)")

    assert json.loads(line)["body"] == r"b'\xff\n'"


def test_what_a_client_chose_can_neither_move_the_cursor_nor_forge_a_line() -> None:
    (line,) = logged(r"log.info('subscribed', destination='a\x1b[2J\nb', id='\x9b2J')", log_format="human")

    assert "\x1b" not in line
    assert "\x9b" not in line
    assert r"a\x1b[2J\x0ab" in line


def test_neither_can_what_a_traceback_quotes_nor_what_turns_text_around() -> None:
    body = r"""
try:
    raise ValueError("\x1b[2J\u202e" + chr(0x85))
except ValueError:
    log.exception("\u2066failed", topic="\u200f\u2028")
"""
    text = "\n".join(logged(body, log_format="human"))

    assert not {"\x1b", "\u202e", "\x85", "\u2066", "\u200f", "\u2028"} & set(text)
    assert r"ValueError: \x1b[2J\u202e\x85" in text
    assert "Traceback (most recent call last):\n" in text


def test_a_closed_stderr_does_not_stop_the_program() -> None:
    body = "import os; os.close(2)\nfor _ in range(3): log.info('unheard')\nprint('still here')"
    command = [*PYTHON, "-c", SCRIPT.format(body=body), "info", "json"]

    with PreparedProcess[str](command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        output, _ = process.communicate()

    assert output == "still here\n"


def test_configuring_again_replaces_what_was_before() -> None:
    (line,) = logged("logs.configure(LogLevel.INFO, LogFormat.JSON); log.info('once')", log_format="human")

    assert json.loads(line)["event"] == "once"
