"""Questions and answers, and what is known when no answer comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.client import (
    AnswerUnreachable,
    Message,
    NoAnswer,
    NobodyListens,
    Refused,
    Reply,
)
from tests.client.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.client.scripted_broker import Connection, Said

REPLIES = "/temp-queue/replies"


async def answer(connection: Connection, asked: Said, body: bytes = b"42", **headers: str) -> None:
    await connection.say(
        "MESSAGE", body, subscription=REPLIES, correlation_id=asked.headers["correlation-id"], **headers
    )


async def test_an_answer_is_told_from_others_by_its_correlation_id(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    answers = []

    async def use() -> None:
        async with broker.client() as client, trio.open_nursery() as inner:

            async def ask(question: bytes) -> None:
                answers.append((question, (await client.call("/queue/q", question, timeout=10)).body))

            inner.start_soon(ask, b"1")
            inner.start_soon(ask, b"2")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        connection = await broker.accept()
        asked = [await connection.next_frame("SEND") for _ in range(2)]
        for each in reversed(asked):
            assert (each.headers["reply-to"], each.headers["mandatory"]) == (REPLIES, "true")
            await answer(connection, each, each.body * 2)
            await connection.confirm(each)
        await connection.part()
    assert sorted(answers) == [(b"1", b"11"), (b"2", b"22")]


async def test_the_error_says_why_no_answer_comes(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(NobodyListens, match="Nobody listens at /topic/q"):
                    await client.call("/topic/q", b"", timeout=10)
                with pytest.raises(NoAnswer, match=r"within 10 seconds\. The broker has the request"):
                    await client.call("/topic/q", b"", timeout=10)
                with pytest.raises(NoAnswer, match="has not confirmed the request"):
                    await client.call("/topic/q", b"", timeout=10)
                with pytest.raises(Refused, match="not allowed"):
                    await client.call("/topic/q", b"", timeout=10)

        connection = await broker.accept()
        asked = await connection.next_frame("SEND")
        await connection.confirm(asked)
        await answer(connection, asked, b"", returned="no-subscriber")
        asked = await connection.next_frame("SEND")
        await connection.confirm(asked)
        await trio.sleep(11)
        await answer(connection, asked)  # too late, and nobody minds
        await connection.next_frame("SEND")
        await connection.refuse(await connection.next_frame("SEND"), "not allowed")


async def test_a_request_is_repeated_until_the_broker_has_it_and_then_its_answer_is_lost(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(AnswerUnreachable, match="whether it was done is not known"):
                    await client.call("/queue/q", b"", timeout=100)

        first = await broker.accept()
        asked = await first.next_frame("SEND")
        await first.cut()
        second = await broker.accept()
        assert await second.next_frame("SEND") == asked
        await second.confirm(asked)
        await second.cut()


async def test_an_answer_is_read_although_nobody_takes_what_has_come_for_a_subscription(
    autojump_clock: MockClock,
) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.subscribe("/topic/a", ack="auto", prefetch=1):
                assert (await client.call("/queue/q", b"", timeout=10)).body == b"42"

        connection = await broker.accept()
        await connection.take_subscription()
        await connection.deliver("1", b"1", b"2")
        asked = await connection.next_frame("SEND")
        await connection.confirm(asked)
        await wait_all_tasks_blocked()
        await answer(connection, asked)
        await connection.next_frame("UNSUBSCRIBE")
        await connection.part()


async def test_activemq_wants_a_subscription_for_replies(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client():
                pass

        connection = await broker.accept(server="ActiveMQ/6.1.0")
        said = await connection.next_frame("SUBSCRIBE")
        assert (said.headers["id"], said.headers["destination"]) == (REPLIES, REPLIES)
        await connection.part()


async def test_a_handler_answers_and_one_that_fails_refuses_the_message_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ScriptedBroker()

    async def handler(message: Message) -> Reply | bytes | None:
        await trio.lowlevel.checkpoint()
        if message.body == b"bad":
            raise ValueError("not a number")
        return None if message.body == b"quiet" else Reply(message.body * 2, {"status": "ok"})

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.serve("/queue/q", handler, group="g"):
                await trio.sleep(100)

        connection = await broker.accept()
        assert (await connection.take_subscription()).headers["group"] == "g"
        for body in (b"bad", b"quiet", b"good"):
            await connection.say(
                "MESSAGE", body, subscription="1", ack=body.decode(), reply_to="/reply-queue/x", correlation_id="7"
            )
        nack = await connection.next_frame("NACK")
        assert nack.headers == {"id": "bad", "reason": "ValueError\\c not a number"}
        assert (await connection.next_frame("ACK")).headers == {"id": "quiet"}
        reply = await connection.next_frame("SEND")
        assert (reply.headers["destination"], reply.headers["correlation-id"]) == ("/reply-queue/x", "7")
        assert (reply.headers["status"], reply.body) == ("ok", b"goodgood")
        await connection.hears_nothing()  # acknowledged only when the reply is safe
        await connection.confirm(reply)
        assert (await connection.next_frame("ACK")).headers == {"id": "good"}
        await connection.part("UNSUBSCRIBE")
    assert "the handler of" in caplog.text


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ValueError("\udcff\0"), r"ValueError\c \\udcff\\x00"),
        ("text", r"AttributeError\c 'str' object has no attribute 'headers'"),
        (Reply("text"), r"TypeError\c memoryview\c a bytes-like object is required, not 'str'"),  # type: ignore[arg-type]
        (Reply(b"", {"receipt": "1"}), r"ValueError\c the header 'receipt' is set by the client"),
    ],
    ids=["a text that is not Unicode", "no reply", "no bytes", "a header of the client's"],
)
async def test_a_handler_without_a_reply_that_can_be_sent_refuses_the_message_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, reply: Any, reason: str
) -> None:
    # A log with the first of them is nothing that a process of the test runner can tell another.
    caplog.set_level(logging.CRITICAL, logger="stompbroker.client")
    broker = ScriptedBroker()

    async def handler(message: Message) -> Reply | bytes | None:
        await trio.lowlevel.checkpoint()
        if isinstance(reply, Exception):
            raise reply
        return cast("Reply", reply)

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client, client.serve("/queue/q", handler):
                await trio.sleep(100)

        connection = await broker.accept()
        await connection.take_subscription()
        for name in ("1", "2"):
            await connection.say("MESSAGE", b"", subscription="1", ack=name, reply_to="/reply-queue/x")
            nack = await connection.next_frame("NACK")
            assert nack.headers["id"] == name
            assert nack.headers["reason"].startswith(reason)
        await connection.next_frame("UNSUBSCRIBE")
        await connection.part()


async def test_a_handler_s_block_ends_with_its_subscription(autojump_clock: MockClock) -> None:
    broker = ScriptedBroker()

    async def handler(_: Message) -> bytes:
        raise AssertionError

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def use() -> None:
            async with broker.client() as client:
                with pytest.raises(Refused, match="gone"):
                    async with client.serve("/queue/q", handler):
                        await trio.sleep_forever()

        first = await broker.accept()
        await first.take_subscription()
        await first.cut()
        second = await broker.accept()
        await second.refuse(await second.next_frame("SUBSCRIBE"), "gone")
