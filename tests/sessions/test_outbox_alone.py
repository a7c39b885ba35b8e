"""What a connection is owed reaches it as it was put, in order, whatever the kernel takes and whoever hands it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import wait_all_tasks_blocked

from stompbroker import buffers
from stompbroker.buffers import rest_of
from stompbroker.memory_budget import MemoryBudget
from stompbroker.sessions import FlushQueue, Outbox
from stompbroker.sessions import outbox as outbox_module
from stompbroker.sessions.outbox import MAX_OUTBOX_BYTES
from stompbroker.signals import Signal
from tests.support.small_kernel import SmallKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.buffers import Buffer


@final
class Settled:
    """Stands for a consumer: knows what was settled, and whether it was woken."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.wake_ups = 0

    def wake(self) -> None:
        self.wake_ups += 1

    def when_sent(self, offset: int) -> Callable[[], None]:
        return lambda: self.offsets.append(offset)


@final
class Connection:
    """An outbox with its surroundings."""

    def __init__(self, room_bytes: int = 1 << 30) -> None:
        self.budget = MemoryBudget(1 << 30)
        self.flush_queue = FlushQueue()
        self.drained = Signal()
        self.kernel = SmallKernel(room_bytes)
        self.outbox = Outbox(self.budget, self.drained, self.flush_queue)
        self.outbox.send_now = self.kernel.send

    def put_attended(self, *parts: bytes) -> None:
        """As in one stretch of a worker."""
        self.flush_queue.is_attended = True
        for part in parts:
            self.outbox.put(part)
        self.flush_queue.send()
        self.flush_queue.leave()


@pytest.fixture
def connection() -> Connection:
    return Connection()


# At once -------------------------------------------------------------------------------------------------------------


def test_what_is_put_while_somebody_attends_is_one_write(connection: Connection) -> None:
    connection.put_attended(b"one ", b"two ", b"three")

    assert (connection.kernel.taken, connection.kernel.calls) == (b"one two three", 1)
    assert connection.outbox.sent_bytes == 13
    assert connection.outbox.size_bytes == connection.budget.used_bytes == 0


def test_what_is_put_while_nobody_attends_waits_for_the_writer(connection: Connection) -> None:
    connection.outbox.put(b"later")
    connection.put_attended()

    assert connection.kernel.calls == 0
    assert connection.outbox.take() == ([b"later"], [])


def test_a_stream_without_a_way_to_the_kernel_is_left_to_the_writer(connection: Connection) -> None:
    connection.outbox.send_now = None

    connection.put_attended(b"later")

    assert connection.outbox.take() == ([b"later"], [])


@pytest.mark.parametrize("room_bytes", [0, 1, 9])
def test_what_the_kernel_has_no_room_for_is_left_to_the_writer(room_bytes: int) -> None:
    connection = Connection(room_bytes)

    connection.put_attended(b"0123456789")

    assert connection.outbox.sent_bytes == len(connection.kernel.taken) == room_bytes
    assert connection.outbox.size_bytes == connection.budget.used_bytes == 10 - room_bytes
    assert connection.outbox.take() == ([b"0123456789"[room_bytes:]], [])


def test_a_broken_connection_is_the_writers_to_find_out(connection: Connection) -> None:
    connection.kernel.is_broken = True

    connection.put_attended(b"lost")

    assert connection.outbox.take() == ([b"lost"], [])


@pytest.mark.parametrize("taken_bytes", [0, 5])
def test_the_kernel_is_not_asked_again_before_the_writer_has_waited_for_it(taken_bytes: int) -> None:
    """Each time would be a join of all that is owed, and a system call for nothing."""
    connection = Connection(taken_bytes)
    connection.put_attended(b"0123456789")
    connection.kernel.room_bytes = 100

    for _ in range(3):
        connection.put_attended(b"more")

    assert connection.kernel.calls == 1
    (data,), when_sent = connection.outbox.take()
    assert data == b"0123456789"[taken_bytes:] + b"more" * 3
    connection.outbox.mark_sent(len(data), when_sent)
    connection.put_attended(b"at once again")
    assert connection.kernel.taken.endswith(b"at once again")


def test_nothing_overtakes_what_the_writer_is_sending(connection: Connection) -> None:
    connection.outbox.put(b"half a frame")
    (data,), when_sent = connection.outbox.take()

    connection.put_attended(b"the next one")

    assert connection.kernel.calls == 0
    connection.outbox.mark_sent(len(data), when_sent)
    assert connection.outbox.take() == ([b"the next one"], [])


def test_a_writer_that_was_cancelled_half_way_is_not_overtaken_either(connection: Connection) -> None:
    """Nobody knows how much of it was sent."""
    connection.outbox.put(b"half a frame")
    connection.outbox.take()

    connection.put_attended(b"the last word")
    connection.outbox.send_at_once()

    assert connection.kernel.calls == 0


def test_a_connection_that_is_closed_before_its_departure_sends_nothing(connection: Connection) -> None:
    connection.flush_queue.is_attended = True
    connection.outbox.put(b"too late")
    connection.outbox.close()
    connection.flush_queue.send()
    connection.flush_queue.leave()

    assert connection.kernel.calls == 0
    assert connection.budget.used_bytes == 0


def test_the_rest_of_a_buffer_does_not_keep_the_whole_buffer() -> None:
    """Only what is owed is charged."""
    connection = Connection(room_bytes=999_999)

    connection.put_attended(b"x" * 1_000_000)

    (data,), _ = connection.outbox.take()
    assert (type(data), data) == (bytes, b"x")


def test_a_large_part_is_not_copied_when_half_of_it_is_left_and_what_it_keeps_is_charged() -> None:
    connection = Connection(room_bytes=300_000)
    body = bytes(1_000_000)

    connection.put_attended(b"a receipt", body)

    outbox, budget = connection.outbox, connection.budget
    assert outbox.size_bytes == 1_000_009 - 300_000
    assert budget.used_bytes == len(body)
    (rest,), when_sent = outbox.take()
    assert isinstance(rest, memoryview)
    assert rest.obj is body
    outbox.mark_sent(len(rest), when_sent)
    assert (outbox.size_bytes, budget.used_bytes) == (0, 0)


def test_closing_gives_back_what_a_large_part_keeps() -> None:
    connection = Connection(room_bytes=300_000)
    connection.put_attended(bytes(1_000_000))
    assert connection.budget.used_bytes == 1_000_000

    connection.outbox.close()

    assert connection.budget.used_bytes == 0


def test_receipts_that_were_sent_in_part_are_owed_until_all_of_them_are_sent() -> None:
    connection = Connection(room_bytes=10)
    connection.put_attended(b"x" * MAX_OUTBOX_BYTES)
    assert connection.outbox.is_owing_too_much

    (data,), when_sent = connection.outbox.take()
    connection.outbox.mark_sent(len(data), when_sent)

    assert not connection.outbox.is_owing_too_much
    connection.put_attended(b"x" * (MAX_OUTBOX_BYTES - 1))
    assert not connection.outbox.is_owing_too_much


# What depends on having been sent -------------------------------------------------------------------------------------


def test_what_is_settled_by_being_sent_is_settled_with_its_last_byte() -> None:
    connection, settled = Connection(room_bytes=9), Settled()
    connection.flush_queue.is_attended = True
    connection.outbox.put_deliveries([b"0123456789"], settled.when_sent(7))
    connection.flush_queue.send()
    assert settled.offsets == []

    (data,), when_sent = connection.outbox.take()
    connection.outbox.mark_sent(len(data), when_sent)

    assert settled.offsets == [7]


def test_who_found_no_room_is_woken_when_it_was_sent_at_once(connection: Connection) -> None:
    stalled = Settled()
    connection.outbox.call_when_room(stalled.wake)

    connection.put_attended(b"x")

    assert stalled.wake_ups == 1


async def test_who_waits_for_the_end_is_woken_when_the_last_was_sent_at_once(connection: Connection) -> None:
    connection.outbox.put(b"owed")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.outbox.wait_empty)
        await wait_all_tasks_blocked()

        connection.put_attended(b"and more")

    assert connection.kernel.taken == b"owedand more"


@pytest.mark.parametrize(("room_bytes", "is_woken"), [(100, False), (5, True), (0, True)])
async def test_the_writer_is_woken_for_what_is_left_and_for_nothing_else(room_bytes: int, is_woken: bool) -> None:
    connection = Connection(room_bytes)
    has_woken = False

    async def wait() -> None:
        nonlocal has_woken
        await connection.outbox.wait_filled()
        has_woken = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()

        connection.put_attended(b"0123456789")
        await wait_all_tasks_blocked()

        assert has_woken == is_woken
        nursery.cancel_scope.cancel()


async def test_who_attends_no_more_leaves_what_waits_to_the_writers(connection: Connection) -> None:
    """As when a turn ends by a mistake of ours, before anything was sent."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.outbox.wait_filled)
        await wait_all_tasks_blocked()
        connection.flush_queue.is_attended = True
        connection.outbox.put(b"owed")

        connection.flush_queue.leave()

    assert not connection.flush_queue.is_attended
    assert connection.outbox.take() == ([b"owed"], [])


# Whatever happens ----------------------------------------------------------------------------------------------------

PARTS = st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=4)


class OutboxMachine(RuleBasedStateMachine):
    """Many who put, attended or not, a writer that needs several steps, and a kernel with little room."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = Connection(room_bytes=4)
        self.outbox = self.connection.outbox
        self.kernel = self.connection.kernel
        self.settled = Settled()
        self.put = b""
        #: The last byte of each delivery in the stream.
        self.ends: list[int] = []
        #: What the writer has taken and not yet sent, and how much it took.
        self.writing: list[Buffer] = []
        self.taken: tuple[int, list[Callable[[], None]]] = 0, []

    def put_one(self, part: bytes, *, is_delivery: bool) -> None:
        self.put += part
        if is_delivery:
            self.outbox.put_deliveries([part], self.settled.when_sent(len(self.ends)))
            self.ends.append(len(self.put))
        else:
            self.outbox.put(part)

    @rule(part=st.binary(min_size=1, max_size=8), is_delivery=st.booleans())
    def put_unattended(self, part: bytes, is_delivery: bool) -> None:
        self.put_one(part, is_delivery=is_delivery)

    @rule(parts=PARTS, is_delivery=st.booleans(), is_sent=st.booleans())
    def put_attended(self, parts: list[bytes], is_delivery: bool, is_sent: bool) -> None:
        self.connection.flush_queue.is_attended = True
        for part in parts:
            self.put_one(part, is_delivery=is_delivery)
        if is_sent:
            self.connection.flush_queue.send()
        self.connection.flush_queue.leave()

    @rule(room_bytes=st.integers(0, 20))
    def read(self, room_bytes: int) -> None:
        """The client reads, or does not."""
        self.kernel.room_bytes = room_bytes

    @precondition(lambda self: not self.writing and self.outbox.size_bytes)
    @rule()
    def begin_to_write(self) -> None:
        self.writing, when_sent = self.outbox.take()
        self.taken = sum(map(len, self.writing)), when_sent

    @precondition(lambda self: self.writing and self.kernel.room_bytes)
    @rule()
    def go_on_writing(self) -> None:
        self.writing = rest_of(self.writing, self.kernel.send(*self.writing))
        if not self.writing:
            self.outbox.mark_sent(*self.taken)

    @invariant()
    def the_client_gets_what_was_put_in_its_order(self) -> None:
        assert self.put.startswith(self.kernel.taken)

    @invariant()
    def what_is_owed_is_known_and_charged(self) -> None:
        if not self.writing:
            assert self.outbox.sent_bytes == len(self.kernel.taken)
        assert self.outbox.sent_bytes <= len(self.kernel.taken)
        assert self.outbox.put_bytes == len(self.put)
        held_bytes = self.connection.budget.used_bytes - self.outbox.size_bytes
        assert 0 <= held_bytes <= self.outbox.size_bytes

    @invariant()
    def deliveries_are_settled_in_order_and_never_before_they_are_sent(self) -> None:
        assert self.settled.offsets == list(range(len(self.settled.offsets)))
        if self.settled.offsets:
            assert self.ends[self.settled.offsets[-1]] <= len(self.kernel.taken)

    def teardown(self) -> None:
        """The client reads everything in the end."""
        self.kernel.room_bytes = 1 << 30
        if self.writing:
            self.go_on_writing()
        if self.outbox.size_bytes:
            self.begin_to_write()
            self.go_on_writing()
        assert self.kernel.taken == self.put
        assert len(self.settled.offsets) == len(self.ends)


class LargePartsMachine(OutboxMachine):
    """The same when four bytes are a large part."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (buffers, outbox_module):
            self.patch.setattr(module, "LARGE_BYTES", 4)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestLargePartsMachine = LargePartsMachine.TestCase
TestLargePartsMachine.settings = settings(max_examples=200, stateful_step_count=40)
TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=200, stateful_step_count=40)
