"""Publishing over connections that are lost at every point; on memory streams and the clock that jumps by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.client import (
    BackOff,
    ClientClosed,
    ClientError,
    GaveUp,
    LoginRefused,
    NoConnection,
    OutboxFull,
    Problem,
    Refused,
    Unconfirmed,
)
from stompbroker.client.stream import CONNECT_TIMEOUT_S
from tests.client.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trio.testing import MockClock


async def test_publish_returns_what_the_receipt_says(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    confirmed: list[Mapping[str, str]] = []

    async def use() -> None:
        async with broker.client(client_id="c", login="alice", passcode="secret") as client:
            confirmed.append(await client.publish("/topic/a", b"x", headers={"report": "true"}, persistent=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        connection = await broker.accept_silently()
        said = await connection.next_frame("CONNECT")
        assert {"accept-version": "1.1,1.2", "login": "alice", "client-id": "c"}.items() <= said.headers.items()
        await connection.say("CONNECTED", version="1.2")
        send = await connection.next_frame("SEND")
        await connection.confirm(send, matched="2")
        await connection.part()

    assert send.headers == {
        "destination": "/topic/a",
        "report": "true",
        "persistent": "true",
        "receipt": "1",
        "content-length": "1",
    }
    assert confirmed[0]["matched"] == "2"


async def test_who_publishes_soon_can_be_told_what_became_of_each_message(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    told: list[Mapping[str, str] | ClientError] = []

    async def use() -> None:
        async with broker.client() as client:
            for body in (b"1", b"2"):
                await client.publish_soon("/topic/a", body, then=told.append)
            await client.flush()  # does not raise what was told

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        first = await broker.accept()
        await first.confirm(await first.next_frame("SEND"), duplicate="true")
        await first.refuse(await first.next_frame("SEND"), "too large")

    (receipt, refused) = told
    assert not isinstance(receipt, ClientError)
    assert receipt["duplicate"] == "true"
    assert isinstance(refused, Refused)


async def test_what_has_no_receipt_is_repeated_as_it_was_and_in_order(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_each, broker, [b"1", b"2", b"3"])
        first = await broker.accept()
        sent = [await first.next_frame("SEND") for _ in range(3)]
        await first.confirm(sent[1])
        await first.cut()

        second = await broker.accept()
        again = [await second.next_frame("SEND") for _ in range(2)]
        assert again == [sent[0], sent[2]]
        for each in again:
            await second.confirm(each)
        await second.part()


async def _publish_each(broker: ScriptedBroker, bodies: list[bytes]) -> None:
    async with broker.client() as client:
        for body in bodies:
            client.publish_nowait("/topic/a", body)
        await client.flush()
        assert client.statistics.confirmed == len(bodies)
        client.check_invariants()


async def test_a_connection_lost_before_anything_was_read_loses_nothing(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_each, broker, [b"1"])
        await (await broker.accept()).cut()
        await (await broker.accept_silently()).cut()

        third = await broker.accept()
        await third.confirm(await third.next_frame("SEND"))
        await third.part()


async def test_a_receipt_that_was_on_its_way_when_the_connection_was_lost_counts(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_each, broker, [b"1"])
        first = await broker.accept()
        await first.confirm(await first.next_frame("SEND"))
        await first.cut()
    assert len(broker.attempts) == 1


async def test_an_error_with_a_receipt_id_fails_that_message_alone(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    refused: list[Refused] = []

    async def use() -> None:
        async with broker.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.publish, "/topic/a", b"1")
            await wait_all_tasks_blocked()
            with pytest.raises(Refused, match="The broker refused: not there") as caught:
                await client.publish("/topic/b", b"2")
            refused.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        first = await broker.accept()
        one, two = [await first.next_frame("SEND") for _ in range(2)]
        await first.refuse(two, "not there")

        second = await broker.accept()
        assert await second.next_frame("SEND") == one
        await second.confirm(one)
        await second.part()
    assert refused[0].headers["receipt-id"] == "2"


async def test_messages_that_are_refused_do_not_make_the_others_wait_longer_and_longer(
    autojump_clock: MockClock,
) -> None:
    broker, waited_s = ScriptedBroker(), list[float]()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(back_off=BackOff(first_s=0.2, jitter=0)) as client:
                for _ in range(10):
                    with pytest.raises(Refused):
                        await client.publish("/topic/*", b"")

        for _ in range(10):
            began_at = trio.current_time()
            connection = await broker.accept()
            waited_s.append(round(trio.current_time() - began_at, 3))
            await connection.refuse(await connection.next_frame("SEND"))
    assert waited_s == [0.0, *[0.2] * 9]


async def test_after_an_error_that_names_nothing_messages_are_sent_one_by_one_until_its_cause_is_found(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()

    async def use() -> None:
        async with broker.client() as client, client.subscribe("/topic/b"):
            first = await client.publish_soon("/topic/a", b"1")
            wrong = await client.publish_soon("/topic/a", b"wrong")
            last = await client.publish_soon("/topic/a", b"2")
            with pytest.raises(Refused):
                await wrong.wait()
            client.check_invariants()
            await first.wait()
            await last.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        connection = await broker.accept()
        await connection.take_subscription()
        for body in (b"1", b"wrong", b"2"):
            assert (await connection.next_frame("SEND")).body == body
        await connection.refuse()
        # Subscriptions are confirmed on each connection, which says nothing of the messages.
        connection = await broker.accept()
        await connection.take_subscription()
        one = await connection.next_frame("SEND")
        assert one.body == b"1"
        await connection.hears_nothing()
        await connection.confirm(one)
        assert (await connection.next_frame("SEND")).body == b"wrong"
        await connection.refuse()
        # It could have been the end of the broker: it is tried once more.
        connection = await broker.accept()
        await connection.take_subscription()
        assert (await connection.next_frame("SEND")).body == b"wrong"
        await connection.hears_nothing()
        await connection.refuse()
        connection = await broker.accept()
        await connection.take_subscription()
        last = await connection.next_frame("SEND")
        assert last.body == b"2"
        await connection.confirm(last)
        await connection.part("UNSUBSCRIBE")


async def test_care_ends_with_what_was_there_when_it_began(autojump_clock: MockClock) -> None:
    broker, is_careful = ScriptedBroker(), trio.Event()

    async def use() -> None:
        async with broker.client() as client:
            await client.publish_soon("/topic/a", b"1")
            await is_careful.wait()
            for body in (b"2", b"3", b"4"):
                await client.publish_soon("/topic/a", body)
            client.check_invariants()
            await client.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        connection = await broker.accept()
        await connection.next_frame("SEND")
        await connection.refuse()
        connection = await broker.accept()
        one = await connection.next_frame("SEND")
        is_careful.set()
        await connection.hears_nothing()
        await connection.confirm(one)
        sent = [await connection.next_frame("SEND") for _ in range(3)]
        assert [each.body for each in sent] == [b"2", b"3", b"4"]
        for each in sent:
            await connection.confirm(each)
        await connection.part()


async def test_a_cancelled_publish_is_not_repeated_and_the_connection_goes_on(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with trio.move_on_after(5):
                    await client.publish("/topic/a", b"cancelled")
                client.check_invariants()
                assert client.statistics.unconfirmed == 0
                await client.publish("/topic/a", b"kept")

        first = await broker.accept()
        cancelled = await first.next_frame("SEND")
        kept = await first.next_frame("SEND")
        await first.confirm(cancelled)  # too late, and nobody minds
        await first.cut()
        second = await broker.accept()
        assert await second.next_frame("SEND") == kept
        await second.confirm(kept)
        await second.part()


async def test_a_full_outbox_says_so_and_publish_waits_for_room(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(max_unconfirmed=2) as client:
                for body in (b"1", b"2"):
                    client.publish_nowait("/topic/a", body)
                with pytest.raises(OutboxFull, match=r"2 messages .* are unconfirmed; at most 2 "):
                    client.publish_nowait("/topic/a", b"3")
                await client.publish("/topic/a", b"3")
                await client.flush()

        connection = await broker.accept()
        sends = [await connection.next_frame("SEND") for _ in range(2)]
        await connection.hears_nothing()
        for send in sends:
            await connection.confirm(send)
        await connection.confirm(await connection.next_frame("SEND"))
        await connection.part()


async def test_bytes_fill_the_outbox_too_but_one_large_message_may_be_alone(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(max_unconfirmed_bytes=1000) as client:
                client.publish_nowait("/topic/a", b"x" * 5000)
                with pytest.raises(OutboxFull):
                    client.publish_nowait("/topic/a", b"")

        connection = await broker.accept()
        await connection.confirm(await connection.next_frame("SEND"))
        await connection.part()


async def test_flush_raises_what_nobody_waited_for(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                client.publish_nowait("/topic/a", b"1")
                with pytest.raises(Refused):
                    await client.flush()
                await client.flush()

        first = await broker.accept()
        await first.refuse(await first.next_frame("SEND"))


async def test_what_is_waited_for_later_is_told_there_and_not_to_whoever_flushes(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                good = client.publish_nowait("/topic/a", b"good")
                bad = await client.publish_soon("/topic/a", b"bad")
                assert not good.is_settled
                with pytest.raises(Refused):
                    await bad.wait()
                assert (await good.wait())["offset"] == "7"
                await client.flush()

        first = await broker.accept()
        await first.confirm(await first.next_frame("SEND"), offset="7")
        await first.refuse(await first.next_frame("SEND"))


async def test_without_a_receipt_a_message_is_sent_once(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                client.publish_nowait("/topic/a", b"1", confirm=False)
                await trio.sleep(1)

        first = await broker.accept()
        assert "receipt" not in (await first.next_frame("SEND")).headers
        await first.cut()
        await (await broker.accept()).part()


# Giving up


async def test_after_the_time_everything_says_what_is_known(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    failures: dict[bytes, Unconfirmed] = {}

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(give_up_after=60) as client:

                async def publish(body: bytes) -> None:
                    with pytest.raises(Unconfirmed) as caught:
                        await client.publish("/topic/a", body)
                    failures[body] = caught.value

                async with trio.open_nursery() as inner:
                    inner.start_soon(publish, b"sent")
                    await trio.sleep(5)
                    inner.start_soon(publish, b"unsent")
                with pytest.raises(GaveUp, match=r"connection for 60 seconds\. No broker listens on broker:61613"):
                    await client.aclose()
                assert client.statistics.unconfirmed == 0
                nursery.cancel_scope.cancel()
                await trio.sleep_forever()

        connection = await broker.accept()
        await connection.next_frame("SEND")
        broker.dead.add("broker")
        await connection.cut()

    assert 59 <= trio.current_time() <= 61
    assert (failures[b"sent"].was_sent, failures[b"unsent"].was_sent) == (True, False)
    assert "it may have arrived" in str(failures[b"sent"])
    assert "was not sent" in str(failures[b"unsent"])


async def test_who_wants_no_second_attempt_gets_one_round(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    broker.dead = {"one", "two"}

    with pytest.raises(NoConnection, match="No broker listens on two"):
        async with broker.client("one", "two", give_up_after=0):
            pytest.fail("not connected")

    assert [host for _, host in broker.attempts] == ["one", "two"]


@pytest.mark.parametrize(
    "words",
    [
        "login refused - wrong login or passcode",
        "Access refused for user 'guest'",
        "User name [guest] or password is invalid.",
        "Security Error occurred: User name [guest] or password is invalid",
        "Supported protocol versions are 1.0",
    ],
)
async def test_a_wrong_login_is_final(autojump_clock: MockClock, words: str) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            with pytest.raises(LoginRefused):
                async with broker.client():
                    pytest.fail("not connected")

        connection = await broker.accept_silently()
        await connection.next_frame("CONNECT")
        await connection.refuse(message=words)
    assert len(broker.attempts) == 1


async def test_what_a_broker_says_instead_of_connected_is_shown_as_it_was_meant(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            with pytest.raises(NoConnection, match="too many: try later"):
                async with broker.client(give_up_after=0):
                    pytest.fail("not connected")

        connection = await broker.accept_silently()
        await connection.next_frame("CONNECT")
        # Escaped, as everything but CONNECT and CONNECTED is.
        await connection.refuse(message="too many: try later")


#: ActiveMQ's answer to a client that comes back before its old connection is missed.
ALREADY_CONNECTED = b"""\
javax.jms.InvalidClientIDException: Broker: one - Client: billing already connected from tcp://127.0.0.1:48826
\tat org.apache.activemq.broker.region.RegionBroker.addConnection(RegionBroker.java:265)
\tat org.apache.activemq.security.SimpleAuthenticationBroker.addConnection(SimpleAuthenticationBroker.java:77)
\t... 20 more
"""


@pytest.mark.parametrize(
    ("message", "body"),
    [
        ("too many connections", b""),
        ("too many connections", ALREADY_CONNECTED),
        # Others have tried wrong passwords from our address: it says nothing of ours.
        ("login refused - too many wrong logins from this address; wait a minute", b""),
    ],
)
async def test_another_error_instead_of_connected_is_not_final(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, message: str, body: bytes
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_each, broker, [])
        connection = await broker.accept_silently()
        await connection.next_frame("CONNECT")
        await connection.say("ERROR", body, message=message)
        await connection.cut()
        await (await broker.accept()).part()
    assert "Authentication" not in caplog.text


async def test_a_token_is_asked_for_at_each_connection(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    tokens = iter(["first", "second"])

    async def fresh() -> str:
        await trio.lowlevel.checkpoint()
        return next(tokens)

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(token=fresh):
                await trio.sleep(10)

        for token in ("first", "second"):
            connection = await broker.accept_silently()
            assert (await connection.next_frame("CONNECT")).headers["authorization"] == f"Bearer {token}"
            await connection.say("CONNECTED", version="1.2")
            if token == "first":
                await connection.cut()
        await connection.part()


async def test_a_token_that_cannot_be_had_is_asked_for_again_and_a_mistake_comes_out(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    failures: list[Exception] = [NoConnection(Problem.NO_ANSWER, "no token today"), KeyError("mistake")]

    async def fresh() -> str:
        await trio.lowlevel.checkpoint()
        raise failures.pop(0)

    with pytest.RaisesGroup(KeyError):
        async with broker.client(token=fresh):
            pytest.fail("not connected")
    assert failures == []


# Connecting


async def test_addresses_are_tried_in_turn(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    broker.dead = {"one"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_parted, broker, "one", "two")
        first = await broker.accept()
        broker.dead = {"two"}
        await first.cut()
        await (await broker.accept()).part()
    assert [host for _, host in broker.attempts] == ["one", "two", "two", "one"]


async def _until_parted(broker: ScriptedBroker, *hosts: str) -> None:
    async with broker.client(*hosts):
        await trio.sleep(30)


async def test_waits_double_are_bounded_and_differ_by_seed(autojump_clock: MockClock) -> None:
    waits = dict[int, list[float]]()
    for seed in (1, 1, 2):
        broker = ScriptedBroker()
        broker.dead = {"broker"}
        with trio.move_on_after(300):
            async with broker.client(back_off=BackOff(seed=seed)):
                pytest.fail("not connected")
        times = [at for at, _ in broker.attempts]
        made = [round(later - earlier, 6) for earlier, later in pairwise(times)]
        assert waits.setdefault(seed, made) == made
        longest = [min(30.0, 0.2 * 2**failures) for failures in range(len(made))]
        assert all(most / 2 <= wait <= most for wait, most in zip(made, longest, strict=True))
    assert waits[1] != waits[2]


@pytest.mark.parametrize("heart_beat", ["1", "-1,0", "a,b", f"{12 * ' '}a,0"])
async def test_a_broker_whose_heart_beats_make_no_sense_does_not_speak_stomp(
    autojump_clock: MockClock, heart_beat: str
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            with pytest.raises(NoConnection, match="does not speak STOMP: heart-beat is"):
                async with broker.client(give_up_after=0):
                    pytest.fail("not connected")

        await broker.accept(heart_beat=heart_beat)


async def test_blanks_in_a_heart_beat_do_no_harm(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_each, broker, [])
        await (await broker.accept(heart_beat=f"{12 * ' '}0, 0")).part()


async def test_empty_lines_are_no_answer_to_connect(autojump_clock: MockClock) -> None:
    broker, has_ended = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            with pytest.raises(NoConnection) as caught:
                async with broker.client(give_up_after=0):
                    pytest.fail("not connected")
            assert caught.value.problem is Problem.SILENT
            has_ended.set()

        connection = await broker.accept_silently()
        began_at = trio.current_time()
        while trio.current_time() < began_at + CONNECT_TIMEOUT_S - 1:
            await connection.say_nothing()
            await trio.sleep(1)
        await has_ended.wait()
        assert trio.current_time() == began_at + CONNECT_TIMEOUT_S


async def test_a_broker_that_has_hung_up_without_saying_so_is_noticed(autojump_clock: MockClock) -> None:
    """After more than two intervals: ActiveMQ's first heart-beat comes after two."""
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(heart_beat=10) as client:
                await client.publish("/topic/a", b"x")

        first = await broker.accept(heart_beat="10000,10000")
        send = await first.next_frame("SEND")
        connected_at = trio.current_time()
        second = await broker.accept(heart_beat="0,0")

        assert 25 <= trio.current_time() - connected_at < 26
        assert await second.next_frame("SEND") == send
        await second.confirm(send)
        await second.part()


async def test_heart_beats_are_sent_while_nothing_else_is(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client(heart_beat=10):
                await trio.sleep(60)

        connection = await broker.accept(heart_beat="0,4000")
        began_at = trio.current_time()
        chunk = b""
        while trio.current_time() - began_at < 50:
            chunk += await connection.receive()
        assert chunk == b"\n" * 10  # each 5 seconds
        await connection.part()


# The end


async def test_the_block_s_own_error_leaves_it_as_it_is(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            with pytest.raises(KeyError):
                await publish_and_fail()

        async def publish_and_fail() -> None:
            async with broker.client() as client:
                client.publish_nowait("/topic/a", b"x")
                raise KeyError

        await broker.accept()


async def test_before_the_block_nothing_is_taken() -> None:
    client = ScriptedBroker().client()

    with pytest.raises(ClientClosed, match="async with connect"):
        await client.publish("/topic/a", b"x")
    assert not await client.aclose()


async def test_what_is_published_after_the_goodbye_was_not_sent(autojump_clock: MockClock) -> None:
    broker, says_goodbye = ScriptedBroker(), trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, trio.open_nursery() as inner:
                inner.start_soon(client.aclose)
                await says_goodbye.wait()
                with pytest.raises(Unconfirmed) as caught:
                    await client.publish("/topic/a", b"x")
                assert not caught.value.was_sent

        connection = await broker.accept()
        goodbye = await connection.next_frame("DISCONNECT")
        says_goodbye.set()
        await wait_all_tasks_blocked()
        await connection.confirm(goodbye)


async def test_after_the_block_nothing_is_taken(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                assert await client.aclose()
            with pytest.raises(ClientClosed):
                client.publish_nowait("/topic/a", b"x")
            with pytest.raises(ClientClosed):
                await client.publish("/topic/a", b"x")

        await (await broker.accept()).part()


@pytest.mark.parametrize("name", ["receipt", "destination", "content-length"])
async def test_headers_that_are_the_client_s_are_refused(autojump_clock: MockClock, name: str) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(ValueError, match=f"'{name}' is set by the client"):
                    client.publish_nowait("/topic/a", b"x", headers={name: "1"})
                with pytest.raises(ValueError, match="surrogates"):
                    client.publish_nowait("/topic/\udcff", b"x")
                with pytest.raises(TypeError, match="bytes-like object is required, not 'str'"):
                    client.publish_nowait("/topic/a", "x")  # type: ignore[arg-type]
                client.check_invariants()

        await (await broker.accept()).part()
