"""What the API answers with, for its document; tests compare real answers with these models.

Times are ISO 8601 in UTC, durations in seconds, sizes in bytes, rates per second.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(Model):
    type: str
    title: str
    status: int
    detail: str = Field(description="What was wrong, and what is allowed.")


class Broker(Model):
    version: str
    state: Literal["running", "stopping"]
    started_at: str
    uptime_s: float


class Now(Model):
    connections: int
    topics: int
    subscriptions: int
    durable_subscriptions: int
    in_flight: int
    waiting: int
    backlog: int
    blocked_topics: int
    dead_letters: int


class Memory(Model):
    used_bytes: int
    peak_bytes: int
    limit_bytes: int


class EventLoop(Model):
    lag_ms: float
    longest_stretch_ms: float
    longest_stretch_actor: str


class Store(Model):
    engine: Literal["memory", "sqlite", "postgresql"]
    state: Literal["ok", "low-space", "failing", "damaged"]
    reason: str | None
    since: str | None
    backlog_units: int
    backlog_bytes: int
    batches: int
    stored_bytes: int | None
    damages: int = Field(description="Damages that were met since the start.")
    check: Literal["running", "done"] | None = Field(
        description="Whether the store is checked, since its last broker did not close it."
    )


class Ledger(Model):
    lake: str
    state: Literal["ok", "failing"] = Field(description="Whether the last export worked.")
    reason: str | None
    since: str | None
    waiting_records: int = Field(description="In the store, and not yet in the lake.")
    waiting_bytes: int
    waiting_since: str | None = Field(description="When the oldest of these was made.")
    last_export_at: str | None = Field(description="The last one that worked, since the start.")
    complete_until: str | None = Field(description="Up to when everything was in the lake then.")


class Overview(Model):
    broker: Broker
    sampled_at: str
    totals: dict[str, int]
    rates: dict[str, float]
    now: Now
    memory: Memory
    event_loop: EventLoop
    store: Store
    ledger: Ledger | None = Field(description="null: this broker keeps none.")


class Listed(Model):
    total: int = Field(description="How many there are that match.")
    next_cursor: str | None = Field(description="For the next page; null on the last one.")


class Topic(Model):
    name: str
    kind: Literal["topic", "queue"]
    destination: str
    is_of_dead_letters: bool
    publishers: int
    subscribers: int
    published: int
    published_bytes: int
    rate: float
    byte_rate: float
    kept_messages: int = Field(description="In memory.")
    kept_bytes: int
    stored: bool = Field(description="Whether what is published goes through the store.")
    retains: bool = Field(description="Whether messages are kept for later subscribers.")
    stored_messages: int
    first_offset: int
    next_offset: int
    blocked: bool = Field(description="Whether publishers are held back.")
    last_used_at: str


class Topics(Listed):
    topics: list[Topic]


class Delivery(Model):
    first_delay_ms: int
    multiplier: float
    max_delay_ms: int
    jitter: float
    max_attempts: int
    ack_deadline_ms: int
    when_used_up: Literal["dead-letter", "discard", "evict"]


class Retention(Model):
    age_s: float
    max_bytes: int
    max_messages: int


class Policy(Model):
    slow_subscriber: Literal["block", "drop-oldest", "drop-newest", "disconnect"]
    window_bytes: int
    window_messages: int
    block_timeout_s: float
    message_ttl_ms: int
    delivery: Delivery
    retention: Retention


class Reading(Model):
    ack_floor: int
    next_offset: int
    backlog: int
    in_flight: int
    waiting: int


class TopicReading(Reading):
    id: str
    key: str
    durable: bool


class TopicDetails(Topic):
    stored_bytes: int | None
    policy: Policy
    publisher_connections: list[int]
    subscriptions: list[TopicReading]


class Subscription(Model):
    id: str
    key: str = Field(description="How people name it.")
    name: str | None = Field(description="The id of its SUBSCRIBE.")
    client_id: str | None = Field(description="Whose it is, if it is durable by a name within a client id.")
    durable_name: str | None
    destination: str
    kind: Literal["topic", "queue"] = Field(description="Of what it subscribes to.")
    durable: bool
    ack: Literal["auto", "client", "client-individual"]
    ordered: bool
    paused: bool
    connected: bool
    connection: int | None
    peer: str | None
    prefetch: int | None
    created_at: str | None
    last_seen_at: str | None
    backlog: int = Field(description="Messages it has still to get, for the first time or again.")
    lag_s: float | None = Field(description="Age of the oldest message it has not settled.")
    in_flight: int
    waiting: int = Field(description="Failed, and not yet due again.")
    delivered: int
    redelivered: int
    acked: int
    nacked: int
    overdue: int
    dead: int
    discarded: int
    expired: int
    dropped: int
    late: int
    rate: float
    ack_rate: float
    oldest_unacknowledged_at: str | None
    drain_s: float | None = Field(description="How long its backlog takes at the present rate of acknowledgements.")


class Subscriptions(Listed):
    subscriptions: list[Subscription]


class SubscriptionTopic(Reading):
    topic: str
    end_offset: int


class DeliveryState(Model):
    state: Literal["settled", "in flight", "waiting", "pending", "ready", "not sent", "not for it"]
    attempts: int | None
    first_attempt_at: str | None
    last_attempt_at: str | None
    next_attempt_at: str | None
    reason: str | None


class Unsettled(DeliveryState):
    topic: str
    offset: int


class SubscriptionDetails(Subscription):
    topics: list[SubscriptionTopic]
    unsettled: list[Unsettled]


class MovedSubscription(Subscription):
    offset: int


class RemovedSubscription(Model):
    id: str
    key: str
    backlog: int


class Connection(Model):
    id: int
    peer: str
    version: str | None
    client_id: str | None
    heart_beat_to_client_ms: int
    heart_beat_from_client_ms: int
    subscriptions: int
    in_flight: int
    publishing_to: list[str]
    bytes_in: int
    bytes_out: int
    connected_at: str
    held_back: bool
    late_acks: int


class Connections(Listed):
    connections: list[Connection]


class DeadLetterTopic(Model):
    topic: str
    destination: str
    letters: int
    bytes: int
    oldest_died_at: str | None


class DeadLetterTopics(Model):
    topics: list[DeadLetterTopic]


class Letter(Model):
    offset: int
    message_id: str
    original_message_id: str
    subscription: str
    is_durable: bool
    attempts: int
    cause: str
    reason: str
    published_at: str
    first_attempt_at: str | None
    last_attempt_at: str | None
    died_at: str
    body_bytes: int


class Piece(Model):
    after: int = Field(description="Where to go on.")
    is_complete: bool


class DeadLetters(Piece):
    letters: list[Letter]


class DeadLetter(Letter):
    destination: str
    headers: list[list[str]]
    body: str = Field(description="In base64.")


class Skipped(Model):
    offset: int
    why: str


class Redriven(Piece):
    redriven: int
    skipped: list[Skipped]


class Purged(Piece):
    purged: int


class InMemory(Model):
    messages: int
    bytes: int


class InStore(InMemory):
    first_offset: int
    next_offset: int


class Retaining(Retention):
    messages: int
    bytes: int


class Pinning(Model):
    subscription: str
    destination: str
    durable: bool
    connected: bool
    last_seen_at: str | None
    lowest_unsettled: int
    unsettled: int
    since: str | None


class Collectable(Model):
    messages: int


class TopicCollection(Model):
    topic: str
    in_memory: InMemory
    stored: InStore | None
    retention: Retaining | None
    pinned_by: list[Pinning]
    collectable: Collectable
    why: str


class Collection(Model):
    total: int
    topics: list[TopicCollection]


class CollectorRun(Model):
    started: bool


class LedgerExport(Model):
    lake: str
    files: list[str]
    records: int
    complete_until: str


class TracedDelivery(DeliveryState):
    subscription: str
    durable: bool
    connected: bool


class Place(Model):
    topic: str
    offset: int
    is_dead_letter: bool
    published_at: str
    expires_at: str | None
    body_bytes: int
    subscriptions: list[TracedDelivery]


class Trace(Model):
    message_id: str
    found: list[Place]
    note: str | None
