"""All settings: key, kind, default, range, reason.

Law: this file only says what there is. Where values come from is `loading.py`, what cannot work together is
`checked_settings.py`, how a kind of value is read and shown is `quantities.py`, and what can differ for some topics is
`topic_settings.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

from pydantic import BeforeValidator, Field, PrivateAttr
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from stompbroker import __version__
from stompbroker.clock import NANOSECONDS
from stompbroker.config.places import EMBEDDED, IN_DATA_DIRECTORY, lake_place
from stompbroker.config.quantities import (
    DAY_S,
    GIB,
    HOUR_MS,
    HOUR_S,
    KIB,
    MIB,
    TIB,
    ByteSize,
    Count,
    Database,
    DirectoryPath,
    Factor,
    Kind,
    LakePlace,
    Milliseconds,
    Seconds,
    ServerHeader,
    Token,
    YesOrNo,
)
from stompbroker.config.topic_settings import (
    Attempts,
    BlockTimeout,
    Deadline,
    FirstDelay,
    Jitter,
    KeptBytes,
    KeptMessages,
    LongestDelay,
    LongTime,
    MessageLifetime,
    Multiplier,
    TopicSettings,
    WindowBytes,
    WindowMessages,
    policy_from,
)
from stompbroker.delivery import SlowSubscriber, TopicPolicies, TopicPolicy, WhenUsedUp, parse_pattern
from stompbroker.stomp import Limits

if TYPE_CHECKING:
    from stompbroker.sessions import SessionSettings

__all__ = [
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "LogFormat",
    "LogLevel",
    "Source",
    "SourceKind",
    "UncheckedSettings",
]

ENVIRONMENT_PREFIX = "STOMPBROKER_"
#: Read from the working directory when no file is given.
DEFAULT_FILE = Path("stompbroker.toml")


class SourceKind(Enum):
    """In rising priority."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@final
@dataclass(frozen=True, slots=True)
class Source:
    """The kind of source, and which file, variable or flag it is."""

    kind: SourceKind = SourceKind.DEFAULT
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


def _read_tables(value: object) -> object:
    """A file gives tables; an environment variable or a flag can only give text, so there it is JSON."""
    return json.loads(value) if isinstance(value, str) else value


def _setting(default: object, reason: str, *, ge: float | None = None, le: float | None = None) -> Any:
    return Field(default, description=reason, ge=ge, le=le)


class UncheckedSettings(BaseSettings):
    """Each setting is fine alone. Durations end in `_s` or `_ms`, sizes are in bytes, the rest are counts or words."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENVIRONMENT_PREFIX, hide_input_in_errors=True
    )

    #: Where each value that is no default came from; filled by `load`.
    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    host: Annotated[str, Field(min_length=1), Kind("a host name or an address")] = _setting(
        "127.0.0.1", "Address to listen on; only this machine by default, because there is no login yet"
    )
    port: Count = _setting(61613, "TCP port for STOMP; 0 takes any free one", ge=0, le=65_535)
    data: DirectoryPath = _setting(
        Path("./data"), "Directory of the broker's lock, control socket and database file; one broker each"
    )
    database: Annotated[Database, Field(repr=False)] = _setting(
        EMBEDDED, "Where durable subscriptions and their messages are stored; empty is a file in the data directory"
    )
    http_enabled: YesOrNo = _setting(True, "Whether there is a management endpoint: API, metrics and page")
    http_host: Annotated[str, Field(min_length=1), Kind("a host name or an address")] = _setting(
        "127.0.0.1", "Address of the management endpoint; any other than this machine's own needs a token"
    )
    http_port: Count = _setting(8613, "Its port; 0 takes any free one", ge=0, le=65_535)
    http_token: Annotated[Token, Field(repr=False)] = _setting(
        "", "What its clients must send as Authorization: Bearer TOKEN; empty asks for none"
    )
    http_token_file: Annotated[str, Kind("the path of a file")] = _setting(
        "", "A file that holds the token, instead of http_token"
    )
    min_free_bytes: ByteSize = _setting(
        64 * MIB,
        "Below this much free space publishers to stored topics wait while consumers make room; 0 turns it off",
        ge=0,
        le=64 * TIB,
    )
    ledger: YesOrNo = _setting(
        True, "Whether it is kept what became of every delivery; needs a database, and goes from there to the lake"
    )
    lake: LakePlace = _setting(IN_DATA_DIRECTORY, "Where that lies as Parquet files, for reports; one broker each")
    lake_export_interval_s: Seconds = _setting(
        3_600.0, "Time after which what has gathered in the database is brought there", ge=1, le=DAY_S
    )
    lake_export_bytes: ByteSize = _setting(
        64 * MIB, "The same by size, as it is in the database: about that much makes one file", ge=64 * KIB, le=TIB
    )
    lake_retention_days: Count = _setting(90, "Age in days at which a date of the lake is deleted", ge=1, le=36_500)
    max_connections: Count = _setting(10_000, "Clients at the same time; more are turned away", ge=1, le=1_000_000)
    memory_limit: ByteSize = _setting(
        512 * MIB, "For all messages, buffers and transactions together", ge=16 * MIB, le=64 * TIB
    )
    connect_timeout_s: Seconds = _setting(
        10.0, "Time a new connection has for its CONNECT before it is closed", ge=0.1, le=HOUR_S
    )

    server_header: ServerHeader = _setting(
        f"stompbroker/{__version__}",
        "What CONNECTED says we are; some clients choose their dialect by it. Empty sends no such header",
    )
    trailing_lf: YesOrNo = _setting(
        True, "Whether a line feed follows the NUL of every frame we send; PHP's extension loses messages without it"
    )
    heart_beat_send_ms: Milliseconds = _setting(
        100, "Shortest interval at which we promise to send heart-beats", ge=1, le=HOUR_MS
    )
    heart_beat_want_ms: Milliseconds = _setting(
        1_000, "Interval at which we would like to get heart-beats", ge=1, le=HOUR_MS
    )
    heart_beat_margin: Factor = _setting(
        2.0, "A client counts as lost after this many intervals without a byte", ge=1, le=100
    )

    max_header_count: Count = _setting(256, "Header lines in one frame", ge=4, le=65_536)
    max_header_bytes: ByteSize = _setting(
        32 * KIB, "Command and headers of one frame; real clients stay under 2 KiB", ge=256, le=16 * MIB
    )
    max_body_bytes: ByteSize = _setting(16 * MIB, "Body of one message", ge=1, le=GIB)
    max_subscriptions: Count = _setting(1_024, "Subscriptions of one connection", ge=1, le=1_000_000)
    max_transactions: Count = _setting(64, "Open transactions of one connection", ge=0, le=65_536)
    max_transaction_frames: Count = _setting(
        1_024, "Frames in one transaction; COMMIT applies them in one step", ge=1, le=1_000_000
    )
    max_transaction_bytes: ByteSize = _setting(16 * MIB, "All frames of one transaction", ge=1, le=TIB)
    transaction_timeout_s: Seconds = _setting(
        600.0, "Age at which an open transaction is given up", ge=0.1, le=7 * DAY_S
    )

    default_prefetch: Count = _setting(
        1_000, "Unacknowledged messages for a subscriber that names no number", ge=1, le=1_000_000
    )
    max_prefetch: Count = _setting(65_535, "Most unacknowledged messages a subscriber may ask for", ge=1, le=1_000_000)
    max_waiting: Count = _setting(
        10_000, "Refused messages of one subscription that wait to be sent again", ge=1, le=10_000_000
    )
    redelivery_first_delay_ms: FirstDelay = _setting(
        1_000, "Time before a message that failed once is sent again; subscribers may ask for another"
    )
    redelivery_multiplier: Multiplier = _setting(
        2.0, "How many times as long the wait is after each further failure; 1 keeps it the same"
    )
    redelivery_max_delay_ms: LongestDelay = _setting(300_000, "Longest time before a failed message is sent again")
    redelivery_jitter: Jitter = _setting(
        0.1, "Part of each wait that may be cut off, so that what failed together does not come back together"
    )
    max_attempts: Attempts = _setting(
        10, "Deliveries of a message to one subscription before it counts as used up; 0 means without end"
    )
    ack_deadline_ms: Deadline = _setting(
        0, "Time a subscriber has to acknowledge before that counts as a failure; 0 means for ever"
    )
    when_used_up: WhenUsedUp = _setting(
        WhenUsedUp.DEAD_LETTER, "What becomes of a message that is used up; evict ends the subscription instead"
    )

    slow_subscriber: SlowSubscriber = _setting(
        SlowSubscriber.BLOCK, "What happens when a subscriber falls out of the window; block holds back publishers"
    )
    window_bytes: WindowBytes = _setting(8 * MIB, "What a topic keeps for subscribers that are behind")
    window_messages: WindowMessages = _setting(50_000, "Messages a topic keeps for subscribers that are behind")
    block_timeout_s: BlockTimeout = _setting(
        30.0, "How long publishers are held back without progress before the slowest subscriber is disconnected"
    )
    message_ttl_ms: MessageLifetime = _setting(
        0, "Life of a message whose publisher does not give it one; it is not delivered after that; 0 means for ever"
    )
    retain_s: LongTime = _setting(
        0.0, "Age up to which a topic keeps messages for later subscribers; 0 sets no such bound, all three 0 keep none"
    )
    retain_bytes: KeptBytes = _setting(0, "The same in bytes of the newest messages; what meets every bound is kept")
    retain_messages: KeptMessages = _setting(0, "The same in number of the newest messages")
    dead_letter_retain_s: LongTime = _setting(
        14.0 * DAY_S, "Age up to which dead letters are kept; 0 sets no such bound, both 0 keep none"
    )
    dead_letter_retain_bytes: KeptBytes = _setting(
        GIB, "The same in bytes of the newest dead letters of one topic; 0 sets no such bound"
    )
    parking_bytes: ByteSize = _setting(
        MIB, "Read ahead from a held-back publisher, so that its ACKs still count", ge=KIB, le=GIB
    )
    max_durable_subscriptions: Count = _setting(
        10_000, "Durable subscriptions at the same time; each keeps what it has not acknowledged", ge=0, le=1_000_000
    )
    idle_warning_s: LongTime = _setting(
        7.0 * DAY_S, "Time without a client after which a durable subscription is warned of; 0 means never"
    )
    idle_delete_s: LongTime = _setting(
        0.0, "Time without a client after which a durable subscription is deleted if it has settled all; 0 means never"
    )
    idle_delete_unsettled: YesOrNo = _setting(
        False, "Delete it also when it has messages it did not acknowledge: these are then lost to it"
    )
    max_topics: Count = _setting(
        100_000, "Topics at the same time; a message or subscriber cannot make more", ge=1, le=10_000_000
    )
    topic_idle_s: Seconds = _setting(
        60.0, "Time after which a topic without subscribers and messages is forgotten", ge=0, le=30 * DAY_S
    )
    shutdown_grace_s: Seconds = _setting(
        10.0, "Time clients get at shutdown to take what is on its way", ge=0, le=HOUR_S
    )

    log_level: LogLevel = _setting(LogLevel.INFO, "The least important lines that are logged")
    log_format: LogFormat = _setting(LogFormat.AUTO, "auto: human on a terminal, JSON lines otherwise")

    topics: Annotated[
        tuple[TopicSettings, ...],
        NoDecode,
        BeforeValidator(_read_tables),
        Kind("[[topics]] tables in a file, or the same as a JSON list of objects"),
    ] = _setting((), "Exceptions for some topics; the first table that matches counts alone")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the constructor is given: pydantic-settings merges before it validates, and then nobody knows
        any more where a wrong value came from. So `load` asks the sources one by one and merges itself."""
        return (init_settings,)

    @property
    def lake_place(self) -> str:
        """An absolute path or a URL."""
        return lake_place(self.lake, self.data)

    def for_sessions(self) -> SessionSettings:
        # Imported here: only a broker needs it, and every command reads its settings.
        from stompbroker.sessions import SessionSettings

        return SessionSettings(
            limits=Limits(
                max_header_count=self.max_header_count,
                max_header_bytes=self.max_header_bytes,
                max_body_bytes=self.max_body_bytes,
                max_transactions=self.max_transactions,
                max_transaction_frames=self.max_transaction_frames,
                max_transaction_bytes=self.max_transaction_bytes,
            ),
            after_frame=b"\n" if self.trailing_lf else b"",
            heart_beat_send_ms=self.heart_beat_send_ms,
            heart_beat_want_ms=self.heart_beat_want_ms,
            heart_beat_margin=self.heart_beat_margin,
            connect_timeout_ns=int(self.connect_timeout_s * NANOSECONDS),
            max_subscriptions=self.max_subscriptions,
            max_durable_subscriptions=self.max_durable_subscriptions,
            default_prefetch=self.default_prefetch,
            max_prefetch=self.max_prefetch,
            max_waiting=self.max_waiting,
            transaction_timeout_ns=int(self.transaction_timeout_s * NANOSECONDS),
            parking_bytes=self.parking_bytes,
            block_timeout_ns=int(self.block_timeout_s * NANOSECONDS),
        )

    def policy(self, table: TopicSettings | None = None) -> TopicPolicy:
        """The general policy, or that of the topics `table` is for."""
        return policy_from(self._for_topics() | (table.overrides() if table else {}))

    def policies(self) -> TopicPolicies:
        """The policies of all topics, in the order in which they are tried.

        Dead letters are kept for a time of their own and do not inherit expiry; a table for them overrides that.
        """
        general = self._for_topics()
        dead_letters = general | {
            "retain_s": self.dead_letter_retain_s,
            "retain_bytes": self.dead_letter_retain_bytes,
            "retain_messages": 0,
            "message_ttl_ms": 0,
        }
        overrides = []
        for table in self.topics:
            pattern = parse_pattern(table.pattern)
            base = dead_letters if pattern.is_of_dead_letters else general
            overrides.append((pattern, policy_from(base | table.overrides())))
        return TopicPolicies(policy_from(general), tuple(overrides), policy_from(dead_letters))

    def _for_topics(self) -> dict[str, Any]:
        """The general value of everything that a table may override."""
        return {key: getattr(self, key) for key in TopicSettings.model_fields if key != "pattern"}
