"""The topics and subscribers of the sample lake: a shop with its usual problems.

Data only. Shares are of all messages of a usual day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class SampleMember:
    """One member of a group or queue: its client id, its share, and how many of its messages it never gets done."""

    name: str
    share: float
    hopeless: float = 0.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReading:
    """One subscription of a topic, and how it behaves."""

    #: Client id and name; the name of a transient one changes with each day's connection. A group has no client id.
    client: str | None
    name: str
    members: tuple[SampleMember, ...] = ()
    is_durable: bool = True
    ack_mode: str = "client-individual"
    #: Deliveries per record: more than 1 where the ledger keeps a sample.
    weight: int = 1
    #: Median time to ack in seconds, and the sigma of its logarithm.
    ack_s: float = 0.02
    ack_scatter: float = 0.7
    #: How long one message keeps the subscriber busy; others wait meanwhile.
    busy_s: float = 0.0
    #: Share of attempts that fail, and of messages that always fail.
    failing: float = 0.0
    hopeless: float = 0.0
    reasons: tuple[str, ...] = ()
    #: Share of messages that expire before they are sent.
    expiring: float = 0.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTopic:
    """One topic."""

    name: str
    share: float
    #: Median body size.
    body_bytes: int
    #: Volume on a Saturday or Sunday, relative to a weekday.
    weekend: float
    readings: tuple[SampleReading, ...]
    kind: str = "topic"


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
            # One of the workers is on a slow machine.
            SampleReading(
                client=None,
                name="invoices",
                members=(
                    SampleMember("invoice-worker-1", 0.31),
                    SampleMember("invoice-worker-2", 0.30),
                    SampleMember("invoice-worker-3", 0.29),
                    SampleMember("invoice-worker-4", 0.10),
                ),
                ack_s=0.3,
                failing=0.01,
                reasons=_ON_TIME,
            ),
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
            # Too slow at noon; catches up in the evening.
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
        share=0.14,
        body_bytes=450,
        weekend=0.7,
        readings=(SampleReading(client="archive", name="audit", ack_mode="client", ack_s=0.12, ack_scatter=0.3),),
    ),
    SampleTopic(
        name="pictures.resize",
        share=0.06,
        body_bytes=90_000,
        weekend=0.5,
        kind="queue",
        readings=(
            # One of the workers has an old library.
            SampleReading(
                client=None,
                name="pictures.resize",
                members=(
                    SampleMember("resizer-a", 0.34),
                    SampleMember("resizer-b", 0.33),
                    SampleMember("resizer-c", 0.33, hopeless=0.012),
                ),
                ack_s=0.7,
                failing=0.02,
                hopeless=0.0005,
                reasons=("not a picture", *_ON_TIME),
                expiring=0.001,
            ),
        ),
    ),
    # Clients choose names, so the page has to cope with anything.
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
