"""The asking side of the control socket, against whatever may answer."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from stompbroker import control_client
from stompbroker.control_client import ANSWER_TIMEOUT_S, ControlRefused, NoBroker, connect
from stompbroker.data_directory import hold
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
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
        assert await control.call("statistics") == {"topics": 1}
        assert await control.call("statistics", limit=5) == {"topics": 2}

    assert [json.loads(request) for request in requests] == [
        {"method": "statistics", "params": {}},
        {"method": "statistics", "params": {"limit": 5}},
    ]
    assert all(request.endswith(b"\n") and request.count(b"\n") == 1 for request in requests)


async def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"res', b'ult": ', b"1}\n")), connect(tmp_path) as control:
        assert await control.call("statistics") == 1


async def test_a_refusal_is_passed_on(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"error": {"message": "no such method"}}\n')), connect(tmp_path) as control:
        with pytest.raises(ControlRefused, match="no such method"):
            await control.call("dance")


@pytest.mark.parametrize("line", [b"hello\n", b"[]\n", b"{}\n", b'{"error": 5}\n', b"\xff\n"])
async def test_somebody_else_at_the_socket_is_noticed(tmp_path: Path, line: bytes) -> None:
    async with answering(tmp_path, saying(line)), connect(tmp_path) as control:
        with pytest.raises(NoBroker, match="is not a broker"):
            await control.call("statistics")


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
            await control.call("statistics")


async def test_a_broker_that_goes_away_is_noticed(tmp_path: Path) -> None:
    async with answering(tmp_path, saying(b'{"resu')), connect(tmp_path) as control:
        with pytest.raises(NoBroker, match="went away"):
            await control.call("statistics")


async def test_a_broker_that_hangs_is_given_up(tmp_path: Path, mock_clock: MockClock) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with answering(tmp_path, answer), connect(tmp_path) as control:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                with pytest.raises(NoBroker, match="seems to hang"):
                    await control.call("statistics")

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
        assert await control.call("statistics") == 1


async def test_a_long_path_without_a_broker_is_the_same_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoBroker, match="No broker is running"):
        async with connect(tmp_path / ("d" * 200)):
            pass
