"""The control socket: the asking side against whatever may answer, the answering side against whatever may be asked."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from stompbroker.access import Audit
from stompbroker.actors import control_listener
from stompbroker.cli import control_client
from stompbroker.cli.control_client import ANSWER_TIMEOUT_S, ControlRefused, NoBroker, connect
from stompbroker.config.data_directory import hold
from stompbroker.control import Control, ControlError
from stompbroker.errors import OperatorError
from stompbroker.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from trio.testing import MockClock

    Answering = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def answering(data: Path, answer: Answering) -> AsyncIterator[None]:
    """Somebody who listens on the control socket and answers in their own way."""
    with hold(data) as directory, directory.listen_for_control() as raw:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(raw))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answer, [listener])
            yield
            nursery.cancel_scope.cancel()


def saying(*chunks: bytes) -> Answering:
    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            for chunk in chunks:
                await stream.send_all(chunk)
                await trio.testing.wait_all_tasks_blocked()  # so that each is received alone

    return answer


async def test_a_request_is_one_json_line_and_its_result_is_returned(tmp_path: Path) -> None:
    requests: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            async for chunk in stream:
                requests.append(bytes(chunk))
                await stream.send_all(b'{"result": {"topics": %d}}\n' % len(requests))

    async with answering(tmp_path, answer), connect(tmp_path) as control:
        assert await control.call("overview") == {"topics": 1}
        assert await control.call("overview", limit=5) == {"topics": 2}

    assert [json.loads(request) for request in requests] == [
        {"method": "overview", "params": {}},
        {"method": "overview", "params": {"limit": 5}},
    ]
    assert all(request.endswith(b"\n") and request.count(b"\n") == 1 for request in requests)


async def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"res', b'ult": ', b"1}\n")), connect(tmp_path) as control:
        assert await control.call("overview") == 1


async def test_a_refusal_is_passed_on(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"error": {"message": "no such method"}}\n')), connect(tmp_path) as control:
        with pytest.raises(ControlRefused, match="no such method"):
            await control.call("dance")


@pytest.mark.parametrize("line", [b"hello\n", b"[]\n", b"{}\n", b'{"error": 5}\n', b"\xff\n"])
async def test_somebody_else_at_the_socket_is_noticed(tmp_path: Path, line: bytes) -> None:
    async with answering(tmp_path, saying(line)), connect(tmp_path) as control:
        with pytest.raises(NoBroker, match="is not a broker"):
            await control.call("overview")


async def test_an_answer_without_an_end_is_not_collected_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "MAX_ANSWER_BYTES", 10_000)

    async def answer(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"x" * 1000)

    async with answering(tmp_path, answer), connect(tmp_path) as control:
        with pytest.raises(NoBroker, match="does not end"):
            await control.call("overview")


async def test_a_broker_that_goes_away_is_noticed(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"resu')), connect(tmp_path) as control:
        with pytest.raises(NoBroker, match="went away"):
            await control.call("overview")


async def test_a_broker_that_hangs_is_given_up(tmp_path: Path, mock_clock: MockClock) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with answering(tmp_path, answer), connect(tmp_path) as control:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                with pytest.raises(NoBroker, match="seems to hang"):
                    await control.call("overview")

            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(ANSWER_TIMEOUT_S)


async def test_nobody_at_all_is_a_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoBroker) as raised:
        async with connect(tmp_path / "data"):
            pass

    assert isinstance(raised.value, OperatorError)
    assert f"No broker is running with the data directory {tmp_path / 'data'}" in str(raised.value)
    assert "stompbroker serve" in str(raised.value)
    assert "--data" in str(raised.value)


async def test_a_socket_left_behind_counts_as_nobody(tmp_path: Path) -> None:
    with hold(tmp_path) as directory:
        directory.listen_for_control().close()
        assert directory.control_socket_path.is_socket()

        with pytest.raises(NoBroker, match="No broker is running"):
            async with connect(tmp_path):
                pass


async def test_a_data_directory_with_a_very_long_path_is_reached(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 200)

    async with answering(data, saying(b'{"result": 1}\n')), connect(data) as control:
        assert await control.call("overview") == 1


async def test_a_long_path_without_a_broker_is_the_same_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoBroker, match="No broker is running"):
        async with connect(tmp_path / ("d" * 200)):
            pass


# The answering side


class ScriptedControl:
    """Does what the method's name says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.finish = trio.Event()

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        self.calls.append((method, params))
        match method:
            case "echo":
                return dict(params)
            case "wait":
                await self.finish.wait()
                self.calls.append(("waited", {}))
                return None
            case "run_collector":
                return {"started": True}
            case "refuse":
                raise ControlError("not today")
            case _:
                raise RuntimeError("a bug")


@asynccontextmanager
async def listening(data: Path) -> AsyncIterator[ScriptedControl]:
    control = ScriptedControl()
    with hold(data) as directory, directory.listen_for_control() as raw:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(raw))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                control_listener.run, listener, cast("Control", control), Audit(LogThrottle()), LogThrottle()
            )
            yield control
            nursery.cancel_scope.cancel()


async def asked(data: Path, request: bytes) -> bytes:
    """All that comes back for some bytes, until the listener closes."""
    stream = await trio.open_unix_socket(data / "control.sock")
    async with stream:
        await stream.send_all(request)
        await stream.send_eof()
        return b"".join([bytes(chunk) async for chunk in stream])


async def test_what_an_operator_changes_is_in_the_audit_log(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with listening(tmp_path), connect(tmp_path) as client:
            await client.call("echo")
            await client.call("run_collector")

    (line,) = [line for line in lines if line["event"] == "operator action"]
    assert (line["user"], line["what"]) == (f"uid {os.getuid()}", "run_collector {}")


async def test_parameters_reach_the_method_and_its_result_comes_back(tmp_path: Path) -> None:
    async with listening(tmp_path) as control, connect(tmp_path) as client:
        assert await client.call("echo", key="c/n", limit=5) == {"key": "c/n", "limit": 5}
        assert await client.call("echo") == {}
        with pytest.raises(ControlRefused, match="not today"):
            await client.call("refuse", key="x")
        assert await client.call("echo") == {}, "the connection goes on"

    assert control.calls[0] == ("echo", {"key": "c/n", "limit": 5})


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"",
        b"[]",
        b"5",
        b"{}",
        b'{"method": 5}',
        b'{"method": "echo", "params": null}',
        b'{"method": "echo", "params": [["a", 1]]}',
        b"\xff",
        b"[" * 30_000,
    ],
)
async def test_what_is_no_request_is_told_what_one_is(tmp_path: Path, line: bytes) -> None:
    async with listening(tmp_path) as control:
        answers = await asked(tmp_path, line + b'\n{"method": "echo"}\n')

    first, second = answers.splitlines()
    assert "a request is one line" in json.loads(first)["error"]["message"]
    assert json.loads(second) == {"result": {}}
    assert [method for method, _ in control.calls] == ["echo"]


async def test_a_request_that_does_not_end_is_not_collected_for_ever(tmp_path: Path) -> None:
    async with listening(tmp_path):
        stream = await trio.open_unix_socket(tmp_path / "control.sock")
        async with stream:
            with suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b"x" * 10_000)


async def test_a_bug_in_one_method_ends_that_connection_alone(tmp_path: Path) -> None:
    async with listening(tmp_path), connect(tmp_path) as other:
        assert await asked(tmp_path, b'{"method": "stumble"}\n') == b""

        assert await other.call("echo") == {}


async def test_what_was_begun_is_finished_when_nobody_waits_any_more(tmp_path: Path) -> None:
    async with listening(tmp_path) as control:
        stream = await trio.open_unix_socket(tmp_path / "control.sock")
        async with stream:
            await stream.send_all(b'{"method": "wait"}\n')
            await trio.testing.wait_all_tasks_blocked()

        control.finish.set()
        await trio.testing.wait_all_tasks_blocked()

        assert [method for method, _ in control.calls] == ["wait", "waited"]


async def test_a_method_may_take_longer_than_a_client_may_be_silent(tmp_path: Path, mock_clock: MockClock) -> None:
    async with listening(tmp_path) as control:
        stream = await trio.open_unix_socket(tmp_path / "control.sock")
        async with stream:
            await stream.send_all(b'{"method": "wait"}\n')
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(control_listener.IDLE_S + 1)
            await trio.testing.wait_all_tasks_blocked()
            control.finish.set()

            assert await stream.receive_some() == b'{"result": null}\n'

            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(control_listener.IDLE_S + 1)
            assert await stream.receive_some() == b"", "it was silent for too long"
