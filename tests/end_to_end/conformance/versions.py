"""Marks that run a test in the versions it is about, and what is not the same in all of them.

Law: how a client of each version writes what every version can say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from stompbroker.stomp import Version

if TYPE_CHECKING:
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import Client

V1_0: Final = Version.V1_0
V1_1: Final = Version.V1_1
V1_2: Final = Version.V1_2


def in_versions(*versions: Version) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", versions, ids=[version.value for version in versions])


every_version: Final = in_versions(*Version)
from_1_1_on: Final = in_versions(V1_1, V1_2)
#: ACK and NACK, in the versions that have them.
every_answer: Final = pytest.mark.parametrize(
    ("version", "command"),
    [(V1_0, "ACK"), (V1_1, "ACK"), (V1_2, "ACK"), (V1_1, "NACK"), (V1_2, "NACK")],
    ids=["1.0-ACK", "1.1-ACK", "1.2-ACK", "1.1-NACK", "1.2-NACK"],
)


async def answer(client: Client, command: str, message: Frame, **headers: str) -> None:
    """ACK or NACK a MESSAGE, with the headers the client's version has for it."""
    if client.version is V1_2:
        named = {"id": message.headers["ack"]}
    elif client.version is V1_1:
        named = {"message_id": message.headers["message-id"], "subscription": message.headers["subscription"]}
    else:
        named = {"message_id": message.headers["message-id"]}
    await client.send(command, **named, **headers)
