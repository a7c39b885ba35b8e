"""The data directory: one holder at a time, known by name, and gone with its process."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from stompbroker.config.data_directory import (
    MAX_SOCKET_PATH_BYTES,
    DataDirectoryError,
    control_address,
    control_socket_path,
    hold,
)
from stompbroker.errors import OperatorError
from tests.support.prepared_process import PYTHON, PreparedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from stompbroker.config.data_directory import hold
with hold(Path(sys.argv[1])) as directory:
    listener = directory.listen_for_control()
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    with PreparedProcess[str](
        [*PYTHON, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    path = tmp_path / ("d" * 100) / ("e" * 100)
    assert len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES
    return path


def test_the_directory_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"

    with hold(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE((path / "broker.lock").stat().st_mode) == 0o600


def test_the_lock_file_says_who_holds_it(tmp_path: Path) -> None:
    with hold(tmp_path):
        holder = json.loads((tmp_path / "broker.lock").read_text())

    assert (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
    assert holder["started_at"].endswith("+00:00")


def test_the_name_of_an_earlier_holder_is_gone_whatever_its_length(tmp_path: Path) -> None:
    (tmp_path / "broker.lock").write_text("x" * 1000)

    with hold(tmp_path):
        assert json.loads((tmp_path / "broker.lock").read_text())["pid"] == os.getpid()


def test_a_second_holder_is_told_who_the_first_one_is(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as process:
        since = json.loads((tmp_path / "broker.lock").read_text())["started_at"]

        with pytest.raises(DataDirectoryError) as raised, hold(tmp_path):
            pytest.fail("two processes hold one directory")

    assert isinstance(raised.value, OperatorError)
    assert f"process {process.pid} on {socket.gethostname()}, since {since}" in str(raised.value)
    assert "--data" in str(raised.value)


def test_a_refused_second_holder_leaves_everything_as_it_is(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path):
        before = (tmp_path / "broker.lock").read_text()

        with pytest.raises(DataDirectoryError), hold(tmp_path):
            pass

        assert (tmp_path / "broker.lock").read_text() == before
        assert control_socket_path(tmp_path).is_socket()


def test_the_same_process_cannot_hold_a_directory_twice(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(DataDirectoryError), hold(tmp_path):
        pass


def test_a_holder_that_has_not_written_its_name_yet_is_described_as_starting(tmp_path: Path) -> None:
    with hold(tmp_path):
        (tmp_path / "broker.lock").write_text("")

        with pytest.raises(DataDirectoryError, match="just starting"), hold(tmp_path):
            pass


def test_the_directory_is_free_again_after_the_block(tmp_path: Path) -> None:
    with hold(tmp_path):
        pass

    with held_by_another_process(tmp_path):
        pass


def test_the_directory_is_free_again_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path):
        _ = 1 / 0

    with hold(tmp_path):
        pass


def test_a_killed_holder_leaves_a_socket_which_the_next_one_replaces(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert control_socket_path(tmp_path).is_socket()

    with hold(tmp_path) as directory, directory.listen_for_control():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(directory.control_socket_path))


def test_the_control_socket_is_for_its_owner_alone_and_goes_with_the_holder(tmp_path: Path) -> None:
    with hold(tmp_path) as directory, directory.listen_for_control():
        assert stat.S_IMODE(directory.control_socket_path.stat().st_mode) == 0o600

    assert not control_socket_path(tmp_path).exists()


def test_a_file_in_the_place_of_the_socket_is_not_removed(tmp_path: Path) -> None:
    control_socket_path(tmp_path).write_text("precious")

    with hold(tmp_path) as directory, pytest.raises(DataDirectoryError, match="in the way"):
        directory.listen_for_control()

    assert control_socket_path(tmp_path).read_text() == "precious"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reaches long paths through /proc/self/fd")
def test_a_path_too_long_for_a_socket_address_works_all_the_same(long_path: Path) -> None:
    with (
        hold(long_path) as directory,
        directory.listen_for_control() as listener,
        socket.socket(socket.AF_UNIX) as client,
    ):
        with control_address(long_path) as address:
            assert len(address) <= MAX_SOCKET_PATH_BYTES
            client.connect(address)
        server, _ = listener.accept()
        with server:
            server.sendall(b"hello")
            assert client.recv(5) == b"hello"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reaches long paths through /proc/self/fd")
def test_a_short_form_of_a_long_path_keeps_no_descriptor_open(long_path: Path) -> None:
    long_path.mkdir(parents=True)
    before = os.listdir("/proc/self/fd")

    with control_address(long_path):
        pass

    assert os.listdir("/proc/self/fd") == before


def test_the_longest_path_that_fits_is_used_as_it_is(tmp_path: Path) -> None:
    room = MAX_SOCKET_PATH_BYTES - len(os.fsencode(control_socket_path(tmp_path))) - 1
    if room < 1:
        pytest.skip("the temporary directory itself has too long a path")
    path = tmp_path / ("d" * room)

    with hold(path) as directory, directory.listen_for_control(), control_address(path) as address:
        assert address == str(directory.control_socket_path)


@pytest.mark.parametrize("inner", ["", "data"])
def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path, inner: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirectoryError, match=r"/file is not a directory.*--data"), hold(tmp_path / "file" / inner):
        pass


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirectoryError, match=r"Cannot create .*--data"), hold(tmp_path / "file" / "a" / "b"):
        pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DataDirectoryError, match=r"broker\.lock"), hold(tmp_path / "data"):
        pass

    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_only_one_of_many_that_try_at_once_gets_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                PreparedProcess[str](
                    [*PYTHON, "-c", HOLDER, str(tmp_path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for _ in range(4)
        ]
        # A refused one ends and closes its stdout; the holder answers and stays.
        answers = [process.stdout.readline() for process in processes if process.stdout is not None]
        for process in processes:
            process.kill()

    assert sorted(answers) == ["", "", "", "held\n"]
