"""What a subscriber may be asked while a message is only half there."""

from __future__ import annotations

import socket

import pytest

from benchmarks.broken import Broken
from benchmarks.peers.nats_roles.counting import AcknowledgeReplies, MessageCounter
from benchmarks.roles.subscriber import AnsweringReceiver


def test_a_message_that_is_answered_before_its_body_is_there_is_no_mistake_until_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        receiver = AnsweringReceiver(ours, bytearray(1024), AcknowledgeReplies(), counter=MessageCounter())
        theirs.sendall(b"MSG deliver.a 1 reply.1 3\r\nxxx\r\nMSG deliver.a 1 reply.2 3\r\n")

        receiver.receive()

        assert receiver.counted == 1
        with pytest.raises(Broken, match="1 messages came with 2 ack headers"):
            _ = receiver.messages
        theirs.sendall(b"xxx\r\n")
        receiver.receive()
        assert receiver.counted == receiver.messages == 2
