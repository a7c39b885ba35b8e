"""A server that answers calls, as a process that can be killed: `python -m soak.rpc_server HOST PORT SERVICE`.

It prints "ready" when it is subscribed. An answer repeats the question and says whether that was marked as
redelivered; some are so large that a kill cuts them off. Calls are acknowledged some at a time, so a kill leaves behind
what has been answered.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Final

from tests.end_to_end.raw_client import RawClient, frame, send_frame
from tests.support.broker_process import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Fewer than the prefetch.
_ACKNOWLEDGED_TOGETHER: Final = 5
_LARGE_EVERY: Final = 97
_LARGE_BYTES: Final = 200_000


class Service(Enum):
    """What can be called; each value is the destination."""

    #: Calls are kept until a server has acknowledged them.
    KEPT = "/queue/rpc"
    #: Servers that acknowledge nothing. What one had when it was killed is lost, and without servers there is nobody.
    SHARED = "/topic/rpc"
    #: Has no servers.
    NOBODY = "/topic/nobody"


_SUBSCRIPTION: Final[Mapping[Service, dict[str, str]]] = {
    Service.KEPT: {"ack": "client-individual", "prefetch_count": "10"},
    Service.SHARED: {"group": "servers", "auto_delete": "true", "ack": "auto"},
}


def answer_to(question: bytes, *, is_again: bool) -> bytes:
    padding = 0 if int(question.split()[1]) % _LARGE_EVERY else _LARGE_BYTES
    return b"%b %b %d %b" % (question, b"again" if is_again else b"first", padding, b"x" * padding)


def main(arguments: Sequence[str]) -> None:
    host, port, name = arguments
    service = Service[name]
    with RawClient.connected(Address(host, int(port))) as client:
        client.socket.settimeout(None)
        client.subscribe(service.value, **_SUBSCRIPTION[service])
        print("ready", flush=True)
        acks: list[bytes] = []
        while True:
            call = client.next_message()
            answer = answer_to(call.body, is_again=call.headers["redelivered"] == "true")
            correlation = call.headers["correlation-id"]
            client.send_raw(send_frame(call.headers["reply-to"], answer, correlation_id=correlation))
            if service is Service.KEPT:
                acks.append(frame("ACK", id=call.headers["ack"]))
            if len(acks) == _ACKNOWLEDGED_TOGETHER:
                client.send_raw(b"".join(acks))
                acks.clear()


if __name__ == "__main__":
    main(sys.argv[1:])
