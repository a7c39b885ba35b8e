"""A STOMP client on trio that keeps its promises over reconnects, for this broker, RabbitMQ and ActiveMQ.

Law: knows the protocol and its carriers, and nothing of the broker. `docs/client.md` shows how to use it.

    async with connect("stomp://localhost:61613") as client:
        await client.publish("/queue/jobs", b"resize 17.png")   # comes back when the broker has confirmed it
        async with client.subscribe("/queue/jobs") as messages:
            async for message in messages:
                message.ack()

The surface: `connect` makes a `Client`, which has `publish`, `publish_soon`, `publish_nowait`, `flush`, `subscribe`,
`transaction`, `call`, `serve`, `statistics`, `wait_ended` and `aclose`. A `Subscription` is iterated over, or gives
many messages at once (`take`); a `Message` is answered with `ack`, `ack_confirmed` or `nack`. What goes wrong is a
`ClientError`.

What holds:
- A SEND is made once (`Client._send_request`) and repeated as it was until its RECEIPT came: at least once, in order.
- Subscriptions are sent again on each connection. A message can be answered on the connection it came over only: later
  answers say `Answered.LATE`, and the message comes again.
- A transaction is gathered here and sent as a whole, so before COMMIT nothing was done.
- Bounds: `max_unconfirmed` messages and `max_unconfirmed_bytes`; of a subscription its prefetch, or MAX_BUFFERED_BYTES.
"""

from stompbroker.client.address import Address, TlsOptions
from stompbroker.client.back_off import BackOff
from stompbroker.client.calling import Reply
from stompbroker.client.client import Client, Statistics
from stompbroker.client.connecting import connect
from stompbroker.client.errors import (
    AnswerLost,
    AnswerUnreachable,
    ClientClosed,
    ClientError,
    GaveUp,
    InvalidAddress,
    LoginRefused,
    NoAnswer,
    NobodyListens,
    NoConnection,
    OutboxFull,
    OutcomeUnknown,
    Problem,
    Refused,
    TooSlow,
    TransactionLost,
    Unconfirmed,
)
from stompbroker.client.subscription import AckMode, Answered, Message, Subscription
from stompbroker.client.transaction import Transaction

__all__ = [
    "AckMode",
    "Address",
    "AnswerLost",
    "AnswerUnreachable",
    "Answered",
    "BackOff",
    "Client",
    "ClientClosed",
    "ClientError",
    "GaveUp",
    "InvalidAddress",
    "LoginRefused",
    "Message",
    "NoAnswer",
    "NoConnection",
    "NobodyListens",
    "OutboxFull",
    "OutcomeUnknown",
    "Problem",
    "Refused",
    "Reply",
    "Statistics",
    "Subscription",
    "TlsOptions",
    "TooSlow",
    "Transaction",
    "TransactionLost",
    "Unconfirmed",
    "connect",
]
