"""A change of the file of users is taken up within seconds, without a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.access import User, change_users
from stompbroker.actors import user_watcher
from tests.access.gate import Gate, entry

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def test_a_removed_user_is_out_within_five_seconds(tmp_path: Path, mock_clock: MockClock) -> None:
    gate = Gate.at(tmp_path, entry("alice", "alice's secret"))
    grant = await gate.let_in("alice", "alice's secret")
    began_at_s = mock_clock.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(user_watcher.run, gate.authenticator, {})
        await wait_all_tasks_blocked()
        change_users(gate.path, lambda users: type(users)({"bob": User()}, users.roles))
        async with trio.open_nursery() as waiting:
            waiting.start_soon(gate.authenticator.changed.wait)
            await wait_all_tasks_blocked()
            mock_clock.jump(user_watcher.LOOK_EVERY_S)
        nursery.cancel_scope.cancel()

    assert mock_clock.current_time() - began_at_s < 5
    assert gate.authenticator.renewed(grant) is None


async def test_an_unchanged_file_is_not_read(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, entry("alice", "alice's secret"))

    with capture_logs() as lines:
        await gate.authenticator.look()
        gate.path.write_text("[users")
        await gate.authenticator.look()
        await gate.authenticator.look()

    assert [line["log_level"] for line in lines] == ["error"]
