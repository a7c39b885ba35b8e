"""The kinds of values, and all settings but the tables for topics: key, kind, default, range, reason.

Law: nothing here reads a source or compares two settings (`loading.py`, `checked_settings.py`). A range belongs to
its setting; messages take it from the constraint that is enforced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from stompbroker import __version__
from stompbroker.config.places import EMBEDDED, IN_DATA_DIRECTORY, read_database, read_lake, without_password
from stompbroker.delivery import SlowSubscriber, WhenUsedUp
from stompbroker.errors import OperatorError
from stompbroker.transport import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
_BYTE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTE_UNITS |= {"kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_BYTE_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]i?b|b)?", re.IGNORECASE | re.ASCII)
#: For upper bounds: longer waits are typing mistakes.
HOUR_S, DAY_S = 3_600, 86_400
HOUR_MS, DAY_MS = HOUR_S * 1_000, DAY_S * 1_000
DECADE_S = 3_650 * DAY_S
#: A shorter deadline would pass before an ACK can come back over a slow network.
MIN_ACK_DEADLINE_MS = 100
#: A fifth of the lease is for what a computer is late with, and a search for garbage alone can take half a second.
MIN_LEASE_S = 2.0
#: Shorter tokens can be guessed.
MIN_TOKEN = 16
#: More than any broker's name needs.
MAX_SERVER_HEADER = 255


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """What a type of settings is called."""

    noun: str
    is_bytes: bool = False
    #: Its validator says what is wrong and what is allowed.
    says_why: bool = False
    #: For a secret: what may be shown of a value, valid or not.
    conceal: Callable[[object], object] | None = None


def _refuse_truth(value: object) -> object:
    """To Python, TOML's `true` is the number 1."""
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


def _read_truth(value: object) -> object:
    """A file gives a boolean, an environment variable or a flag gives a word."""
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("neither true nor false")
    return value == "true"


def _refuse_short_deadline(value: int) -> int:
    if 0 < value < MIN_ACK_DEADLINE_MS:
        raise ValueError("too short to be kept")
    return value


def _refuse_short_lease(value: float) -> float:
    if 0 < value < MIN_LEASE_S:
        raise ValueError("too short to be renewed in time")
    return value


def _read_byte_size(value: object) -> object:
    """Bytes from a number, or from a text such as "512 MiB" (binary) or "10 MB" (decimal)."""
    if not isinstance(value, str):
        return _refuse_truth(value)
    match = _BYTE_SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("not a size")
    return round(float(match[1]) * _BYTE_UNITS[(match[2] or "b").lower()])


def _read_path(value: object) -> object:
    if value == "":
        raise ValueError("an empty path is no directory")
    return Path(value).expanduser() if isinstance(value, str) else value


def _read_server_header(value: str) -> str:
    """CONNECTED is not escaped, so a line end would begin another header."""
    if not value.isprintable() or len(value) > MAX_SERVER_HEADER:
        raise ValueError("not one line of printable text")
    return value


def check_endpoints(value: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError."""
    for text in value:
        try:
            Endpoint.parse(text)
        except OperatorError as error:
            raise ValueError(str(error)) from error
    return value


Count = Annotated[int, BeforeValidator(_refuse_truth), Kind("a whole number")]
Milliseconds = Annotated[int, BeforeValidator(_refuse_truth), Kind("a whole number of milliseconds")]
AckDeadline = Annotated[
    int,
    BeforeValidator(_refuse_truth),
    AfterValidator(_refuse_short_deadline),
    Kind(f"0 for none, or at least {MIN_ACK_DEADLINE_MS}: a whole number of milliseconds"),
]
Seconds = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False), Kind("a number of seconds")]
LeaseTime = Annotated[
    float,
    BeforeValidator(_refuse_truth),
    AfterValidator(_refuse_short_lease),
    Field(allow_inf_nan=False),
    Kind(f"0 for none, or at least {MIN_LEASE_S:g}: a number of seconds"),
]
Factor = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False), Kind("a number")]
YesOrNo = Annotated[bool, BeforeValidator(_read_truth), Kind("true or false")]
ByteSize = Annotated[
    int,
    BeforeValidator(_read_byte_size),
    Kind('a number of bytes or a size such as "64 KiB" or "10 MB"', is_bytes=True),
]
Host = Annotated[str, Field(min_length=1), Kind("a host name or an address")]
DirectoryPath = Annotated[Path, BeforeValidator(_read_path), Kind("a directory")]
Database = Annotated[
    str,
    AfterValidator(read_database),
    Kind(
        '"" for the SQLite file in the data directory, "memory" for nothing that outlives the broker, or a URL '
        "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE (in a password, %40 %2F %3F %23 stand for @ / ? #)",
        conceal=without_password,
    ),
]
LakePlace = Annotated[
    str,
    AfterValidator(read_lake),
    Kind(
        '"" for the directory lake in the data directory, the path of another one, or a URL: file:///DIRECTORY or '
        "s3://BUCKET/PATH, without keys, which come from the environment"
    ),
]
Token = Annotated[
    str,
    Field(pattern=rf"^([!-~]{{{MIN_TOKEN},}})?$"),
    Kind(
        f"at least {MIN_TOKEN} printable ASCII characters without blanks", conceal=lambda value: "***" if value else ""
    ),
]
FilePath = Annotated[str, Kind("the path of a file")]
Endpoints = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
    AfterValidator(check_endpoints),
    Kind(
        "a list of URLs, or a text with blanks between them: stomp://HOST:PORT, stomp+tls://HOST:PORT, "
        "ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, unix:///PATH",
        says_why=True,
    ),
]
ServerHeader = Annotated[
    str,
    AfterValidator(_read_server_header),
    Kind(f'up to {MAX_SERVER_HEADER} printable characters, such as "RabbitMQ/3.13.0", or "" for no such header'),
]


def bytes_as_text(size: int) -> str:
    """A size as in settings: in the largest binary unit, to one decimal if it is not whole."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size // factor} {unit}" if size % factor == 0 else f"{size / factor:.1f} {unit}"
    return f"{size} B"


class SourceKind(Enum):
    """In rising priority."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@final
@dataclass(frozen=True, slots=True)
class Source:
    kind: SourceKind = SourceKind.DEFAULT
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()


LogLevel = StrEnum("LogLevel", ["DEBUG", "INFO", "WARNING", "ERROR"])
LogFormat = StrEnum("LogFormat", ["AUTO", "HUMAN", "JSON"])
Unprefixed = StrEnum("Unprefixed", ["TOPIC", "QUEUE"])
ClientCertificates = StrEnum("ClientCertificates", ["OPTIONAL", "REQUIRED"])


def _setting(default: object, reason: str, lowest: float | None = None, highest: float | None = None) -> Any:
    return Field(default, description=reason, ge=lowest, le=highest)


class GeneralSettings(BaseModel):
    """Each setting is fine alone. Durations end in `_s` or `_ms`, sizes are in bytes, the rest are counts or words."""

    # Its validator is made for whatever has tables besides, when that is needed: nobody uses it alone.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    #: Where each value that is no default came from; filled by `load`.
    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    host: Host = _setting("127.0.0.1", "Address to listen on; any other than this machine's own needs users")
    port: Count = _setting(61613, "TCP port for STOMP; 0 takes any free one", 0, 65_535)
    listen: Endpoints = _setting((), "Where clients connect, instead of host and port or, if these are set, besides")
    data: DirectoryPath = _setting(Path("./data"), "Directory of lock, control socket and database; one per broker")
    database: Annotated[Database, Field(repr=False)] = _setting(
        EMBEDDED, "Where durable subscriptions and messages are stored; empty is a file in the data directory"
    )
    standby: YesOrNo = _setting(
        False, "Whether to wait for a store on PostgreSQL while another broker has it, and take it over then"
    )
    lease_s: LeaseTime = _setting(
        10.0,
        "With standby, or if you set it: after this time without PostgreSQL the broker ends, and a stand-by takes over",
        0,
        HOUR_S,
    )
    http_enabled: YesOrNo = _setting(True, "Whether there is a management endpoint: API, metrics and page")
    http_host: Host = _setting(
        "127.0.0.1", "Address of the management endpoint; any other than this machine's own needs a token"
    )
    http_port: Count = _setting(8613, "Port of the management endpoint; 0 takes any free one", 0, 65_535)
    http_token: Annotated[Token, Field(repr=False)] = _setting(
        "", "Token its clients must send as Authorization: Bearer TOKEN; empty asks for none"
    )
    http_token_file: FilePath = _setting("", "A file that holds the token, instead of http_token")
    http_tls: YesOrNo = _setting(False, "Whether the management endpoint uses TLS, with tls_certificate and tls_key")

    tls_certificate: FilePath = _setting("", "The certificates for TLS, in PEM; read again on SIGHUP, with the key")
    tls_key: FilePath = _setting("", "The key for them, in PEM; empty if it is in the same file")
    tls_client_ca: FilePath = _setting("", "Authorities whose client certificates are accepted as login, in PEM")
    tls_client_certificates: ClientCertificates = _setting(
        ClientCertificates.OPTIONAL, "Whether a client must have a certificate, if there is a tls_client_ca"
    )
    users_file: FilePath = _setting("", "Users, roles and what they may do; empty is users.toml in the data directory")
    anonymous: YesOrNo = _setting(
        False, "Serve any address without login, to anybody who reaches it; this machine's own needs no such leave"
    )
    password_memory: ByteSize = _setting(19 * MIB, "Memory to hash a new password with argon2id", 8 * MIB, GIB)
    password_passes: Count = _setting(2, "Passes over that memory", 1, 100)
    token_keys: FilePath = _setting(
        "", "Keys that JSON Web Tokens must be signed with: a PEM file of public keys, a JWK set, or a shared secret"
    )
    token_issuer: Annotated[str, Kind("a text")] = _setting("", "What a token must have as its issuer (iss)")
    token_audience: Annotated[str, Kind("a text")] = _setting("", "What a token must have as its audience (aud)")
    token_leeway_s: Seconds = _setting(30.0, "How far the clock of who made a token may differ from ours", 0, HOUR_S)
    max_user_connections: Count = _setting(0, "Connections of one user; 0: no limit but all", 0, 1_000_000)
    max_user_subscriptions: Count = _setting(0, "Subscriptions of one user; 0: no limit", 0, 10_000_000)
    max_user_messages_per_s: Count = _setting(0, "Messages a user may send in a second; 0: no limit", 0, 100_000_000)
    max_address_connections: Count = _setting(0, "Connections from one address; 0: no limit but all", 0, 1_000_000)
    max_login_failures: Count = _setting(20, "Wrong logins from one address in a minute; more are refused", 1, 100_000)
    min_free_bytes: ByteSize = _setting(
        64 * MIB, "With less free disk space publishers to stored topics wait; 0 turns this off", 0, 64 * TIB
    )
    ledger: YesOrNo = _setting(True, "Whether the outcome of every delivery is recorded in the database, then the lake")
    lake: LakePlace = _setting(IN_DATA_DIRECTORY, "Where these records are kept as Parquet files; one lake per broker")
    lake_export_interval_s: Seconds = _setting(3_600.0, "Time after which records are exported to the lake", 1, DAY_S)
    lake_export_bytes: ByteSize = _setting(
        64 * MIB, "Size at which records are exported, as about one file", 64 * KIB, TIB
    )
    lake_retention_days: Count = _setting(90, "Age in days at which a date of the lake is deleted", 1, 36_500)
    max_connections: Count = _setting(10_000, "Clients at the same time; more are turned away", 1, 1_000_000)
    memory_limit: ByteSize = _setting(
        512 * MIB, "Memory for messages, buffers and transactions together", 16 * MIB, 64 * TIB
    )
    connect_timeout_s: Seconds = _setting(10.0, "Time a new connection has for its CONNECT", 0.1, HOUR_S)

    server_header: ServerHeader = _setting(
        f"stompbroker/{__version__}",
        "The server header of CONNECTED, by which some clients choose a dialect; empty sends none",
    )
    trailing_lf: YesOrNo = _setting(True, "Send a line feed after each frame; PHP's extension loses messages without")
    heart_beat_send_ms: Milliseconds = _setting(100, "Shortest interval at which we can send heart-beats", 1, HOUR_MS)
    heart_beat_want_ms: Milliseconds = _setting(1_000, "Interval at which we would like to get heart-beats", 1, HOUR_MS)
    heart_beat_margin: Factor = _setting(2.0, "A client is lost after this many intervals without a byte", 1, 100)

    max_header_count: Count = _setting(256, "Header lines in one frame", 4, 65_536)
    max_header_bytes: ByteSize = _setting(32 * KIB, "Command and headers; real clients stay under 2 KiB", 256, 16 * MIB)
    max_body_bytes: ByteSize = _setting(16 * MIB, "Body of one message", 1, GIB)
    max_subscriptions: Count = _setting(1_024, "Subscriptions of one connection", 1, 1_000_000)
    max_transactions: Count = _setting(64, "Open transactions of one connection", 0, 65_536)
    max_transaction_frames: Count = _setting(1_024, "Frames of a transaction; COMMIT applies all at once", 1, 1_000_000)
    max_transaction_bytes: ByteSize = _setting(16 * MIB, "All frames of one transaction", 1, TIB)
    transaction_timeout_s: Seconds = _setting(600.0, "Age at which an open transaction is aborted", 0.1, 7 * DAY_S)

    default_prefetch: Count = _setting(1_000, "Unacknowledged messages if a subscriber names no number", 1, 1_000_000)
    unprefixed: Unprefixed = _setting(
        Unprefixed.TOPIC, "What a destination without /topic/ or /queue/ means; ActiveMQ takes it for a queue"
    )
    queue_max_messages: Count = _setting(
        0, "Messages that a queue may hold; then publishers get an ERROR. 0: no limit but the disk", 0, 10**12
    )
    group_prefetch: Count = _setting(100, "The same for a member of a group: more are kept from others", 1, 1_000_000)
    max_prefetch: Count = _setting(65_535, "Most unacknowledged messages a subscriber may ask for", 1, 1_000_000)
    max_waiting: Count = _setting(10_000, "Refused messages of a subscription, to be sent again", 1, 10_000_000)
    redelivery_first_delay_ms: Milliseconds = _setting(
        1_000, "Time before a message that failed once is sent again; subscribers may ask for another", 0, DAY_MS
    )
    redelivery_multiplier: Factor = _setting(2.0, "Factor by which each further failure makes the wait longer", 1, 100)
    redelivery_max_delay_ms: Milliseconds = _setting(300_000, "Longest wait before a redelivery", 0, 7 * DAY_MS)
    redelivery_jitter: Factor = _setting(0.1, "Part of each wait that may be cut off, to spread retries", 0, 1)
    max_attempts: Count = _setting(10, "Deliveries of a message until it is used up; 0: no limit", 0, 1_000_000)
    ack_deadline_ms: AckDeadline = _setting(
        0, "Time to acknowledge before a delivery counts as failed; 0 means no limit", 0, DAY_MS
    )
    when_used_up: WhenUsedUp = _setting(
        WhenUsedUp.DEAD_LETTER, "What happens to a message that is used up; evict ends the subscription instead"
    )

    slow_subscriber: SlowSubscriber = _setting(
        SlowSubscriber.BLOCK, "What happens when a subscriber falls out of the window; block holds back publishers"
    )
    window_bytes: ByteSize = _setting(8 * MIB, "Bytes a topic keeps for subscribers that are behind", KIB, TIB)
    window_messages: Count = _setting(50_000, "Messages a topic keeps for subscribers that are behind", 1, 100_000_000)
    block_timeout_s: Seconds = _setting(
        30.0, "Time publishers are held back without progress before the slowest subscriber is disconnected", 0, DAY_S
    )
    message_ttl_ms: Milliseconds = _setting(0, "Lifetime if the publisher gives none; 0: no limit", 0, DECADE_S * 1_000)
    last_value: YesOrNo = _setting(False, "Each message becomes its topic's last value, which newcomers get first")
    last_values_bytes: ByteSize = _setting(64 * MIB, "Bytes of all last values, which are kept in memory", 0, TIB)
    retain_s: Seconds = _setting(
        0.0, "Age up to which messages are kept for later subscribers; 0: no limit, all three 0: keep none", 0, DECADE_S
    )
    retain_bytes: ByteSize = _setting(0, "Bytes of newest messages kept; a message must meet every limit", 0, 64 * TIB)
    retain_messages: Count = _setting(0, "Number of newest messages kept for later subscribers", 0, 1_000_000_000)
    dead_letter_retain_s: Seconds = _setting(
        14.0 * DAY_S, "Age up to which dead letters are kept; 0: no limit, both 0: keep none", 0, DECADE_S
    )
    dead_letter_retain_bytes: ByteSize = _setting(GIB, "Bytes of dead letters kept per topic; 0: no limit", 0, 64 * TIB)
    parking_bytes: ByteSize = _setting(MIB, "Bytes read from a held-back publisher, so that its ACKs count", KIB, GIB)
    max_durable_subscriptions: Count = _setting(10_000, "Durable subscriptions; each keeps its backlog", 0, 1_000_000)
    max_producers: Count = _setting(10_000, "Producers of one user that number their messages", 0, 1_000_000)
    producer_idle_s: Seconds = _setting(
        float(DAY_S), "Time without a message after which a producer's numbers are forgotten", 60.0, DECADE_S
    )
    idle_warning_s: Seconds = _setting(
        7.0 * DAY_S, "Time without a client before a warning about a durable subscription; 0: never", 0, DECADE_S
    )
    idle_delete_s: Seconds = _setting(
        0.0, "Time without a client before a settled durable subscription is deleted; 0: never", 0, DECADE_S
    )
    idle_delete_unsettled: YesOrNo = _setting(False, "Delete it even with unacknowledged messages, which are lost")
    max_topics: Count = _setting(100_000, "Topics at the same time; nobody can create more", 1, 10_000_000)
    topic_idle_s: Seconds = _setting(60.0, "Time after which an unused, empty topic is forgotten", 0, 30 * DAY_S)
    shutdown_grace_s: Seconds = _setting(10.0, "Time for clients to receive what is on its way at shutdown", 0, HOUR_S)

    log_level: LogLevel = _setting(LogLevel.INFO, "Lowest level that is logged")
    log_format: LogFormat = _setting(LogFormat.AUTO, "auto: human on a terminal, JSON lines otherwise")
