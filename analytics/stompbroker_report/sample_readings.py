"""Who publishes and who reads in the sample: a shop, with its usual troubles.

Law: a table of made-up facts, and no code. Shares are of all messages of a usual day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

__all__ = ["TOPICS", "SampleReading", "SampleTopic"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReading:
    """One subscription of a topic, and how it behaves."""

    #: Client id and name; a transient one has an id of each day's connection instead of the name.
    client: str
    name: str
    is_durable: bool = True
    ack_mode: str = "client-individual"
    #: Deliveries per record: more than 1 where the ledger keeps a sample.
    weight: int = 1
    #: Median time to ack, in seconds, and how far it scatters (sigma of the logarithm).
    ack_s: float = 0.02
    ack_scatter: float = 0.7
    #: How long one message keeps it busy: messages wait for their turn where there are many.
    busy_s: float = 0.0
    #: Part of the attempts that fail, and of the messages that fail every time.
    failing: float = 0.0
    hopeless: float = 0.0
    reasons: tuple[str, ...] = ()
    #: Part of the messages whose time is up before they are sent.
    expiring: float = 0.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTopic:
    """One topic."""

    name: str
    share: float
    #: Median of the bodies' sizes.
    body_bytes: int
    #: Part of what is published on a Saturday or Sunday.
    weekend: float
    readings: tuple[SampleReading, ...]


_ON_TIME: Final = ("not answered in time", "the connection was lost")

TOPICS: Final = (
    SampleTopic(
        name="orders.created",
        share=0.16,
        body_bytes=900,
        weekend=0.7,
        readings=(
            SampleReading(client="billing", name="orders", failing=0.01, reasons=_ON_TIME),
            SampleReading(
                client="warehouse",
                name="picking",
                ack_s=0.09,
                failing=0.03,
                hopeless=0.0004,
                reasons=("item is not in stock", "no such warehouse", *_ON_TIME),
            ),
            SampleReading(client="dashboard", name="live", is_durable=False, ack_mode="auto", weight=10),
        ),
    ),
    SampleTopic(
        name="orders.cancelled",
        share=0.02,
        body_bytes=300,
        weekend=0.7,
        readings=(
            SampleReading(client="billing", name="orders", failing=0.01, reasons=_ON_TIME),
            SampleReading(client="warehouse", name="picking", ack_s=0.06, failing=0.01, reasons=_ON_TIME),
        ),
    ),
    SampleTopic(
        name="payments.settled",
        share=0.10,
        body_bytes=700,
        weekend=0.7,
        readings=(
            SampleReading(
                client="ledger",
                name="bookings",
                ack_s=0.035,
                hopeless=0.0002,
                failing=0.004,
                reasons=("account is closed", "duplicate booking", *_ON_TIME),
            ),
            SampleReading(client="fraud", name="scoring", ack_s=0.25, ack_scatter=0.9, failing=0.02, reasons=_ON_TIME),
        ),
    ),
    SampleTopic(
        name="mail.outgoing",
        share=0.12,
        body_bytes=12_000,
        weekend=0.5,
        readings=(
            SampleReading(
                client="mailer",
                name="smtp",
                ack_s=0.4,
                failing=0.05,
                hopeless=0.002,
                reasons=(
                    "SMTP 451 greylisted, try again later",
                    "SMTP 550 no such user here",
                    "SMTP 421 too many connections",
                    *_ON_TIME,
                ),
                expiring=0.002,
            ),
        ),
    ),
    SampleTopic(
        name="catalog.changed",
        share=0.14,
        body_bytes=4_000,
        weekend=0.3,
        readings=(
            # Slower than its topic at noon: it catches up in the evening.
            SampleReading(
                client="search", name="indexer", ack_s=0.8, busy_s=1.0, failing=0.01, reasons=("index is read-only",)
            ),
            SampleReading(client="shop", name="cache", ack_mode="auto"),
        ),
    ),
    SampleTopic(
        name="telemetry.vans",
        share=0.24,
        body_bytes=160,
        weekend=0.8,
        readings=(
            SampleReading(client="map", name="positions", is_durable=False, ack_mode="auto", weight=20),
            SampleReading(client="archive", name="telemetry", ack_mode="client", ack_s=0.15, ack_scatter=0.3),
        ),
    ),
    SampleTopic(
        name="audit",
        share=0.20,
        body_bytes=450,
        weekend=0.7,
        readings=(SampleReading(client="archive", name="audit", ack_mode="client", ack_s=0.12, ack_scatter=0.3),),
    ),
    # Names come from clients: whoever shows one has to expect anything.
    SampleTopic(
        name='notes.<b>"R&D"</b>',
        share=0.02,
        body_bytes=200,
        weekend=0.1,
        readings=(
            SampleReading(
                client="R&D",
                name="<i>notes</i>",
                failing=0.02,
                reasons=('the editor said: <b>"no"</b> & hung up', *_ON_TIME),
            ),
        ),
    ),
)
