"""All settings of one broker, checked against each other, and what they mean to the rest of the broker.

Law: only what cannot work is refused, with a sentence that says why and what to do. What is merely unwise, such as a
max_transaction_bytes below max_body_bytes, is the operator's choice. Settings are flat, because people write them.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from stompbroker.clock import NANOSECONDS
from stompbroker.config.bridge_settings import BridgeSettings, wrong_bridges
from stompbroker.config.contradictions import Contradiction, contradictions
from stompbroker.config.places import MEMORY, lake_place
from stompbroker.config.settings import ClientCertificates, GeneralSettings, Kind, Unprefixed
from stompbroker.delivery import (
    QUEUE_PREFIX,
    DeliveryPolicy,
    IdlePolicy,
    Pattern,
    Retention,
    TopicPolicies,
    TopicPolicy,
    parse_pattern,
    parse_topic_name,
)
from stompbroker.stomp import Limits
from stompbroker.transport import Endpoint, Scheme, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stompbroker.access import AccessSettings
    from stompbroker.sessions import SessionSettings

#: In the data directory.
USERS_FILE = "users.toml"


# What a [[topics]] table may override --------------------------------------------------------------------------------

#: Settings with the same name in a policy.
PLAIN: Final = ("slow_subscriber", "window_bytes", "window_messages", "block_timeout_s", "message_ttl_ms", "last_value")

#: Field of a policy → its type, and for each field of that type the setting.
PARTS: Final[Mapping[str, tuple[type, Mapping[str, str]]]] = {
    "delivery": (
        DeliveryPolicy,
        {
            "first_delay_ms": "redelivery_first_delay_ms",
            "multiplier": "redelivery_multiplier",
            "max_delay_ms": "redelivery_max_delay_ms",
            "jitter": "redelivery_jitter",
            "max_attempts": "max_attempts",
            "ack_deadline_ms": "ack_deadline_ms",
            "when_used_up": "when_used_up",
        },
    ),
    "retention": (
        Retention,
        {"age_s": "retain_s", "max_bytes": "retain_bytes", "max_messages": "retain_messages"},
    ),
    "idle": (
        IdlePolicy,
        {
            "warn_after_s": "idle_warning_s",
            "delete_after_s": "idle_delete_s",
            "deletes_unsettled": "idle_delete_unsettled",
        },
    ),
}

#: All settings that a table may have.
PER_TOPIC: Final = (*PLAIN, *(key for _, keys in PARTS.values() for key in keys.values()))


class _Table(BaseModel):
    """One `[[topics]]` table: for the topics that match `pattern`, what differs from the general settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    pattern: Annotated[str, Field(min_length=1), Kind('a destination or a pattern such as "prices.*"')]

    def overrides(self) -> dict[str, Any]:
        return self.model_dump(exclude={"pattern"}, exclude_none=True)


class _QueueTable(BaseModel):
    """One `[[queues]]` table: a queue that is always there, and what differs from the general settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Annotated[str, Field(min_length=1), Kind('the name of a queue, such as "jobs"')]
    queue_max_messages: int | None = None

    @property
    def destination(self) -> Pattern:
        """Raises InvalidDestination."""
        return parse_topic_name(QUEUE_PREFIX + self.name.removeprefix(QUEUE_PREFIX))

    def overrides(self) -> dict[str, Any]:
        return self.model_dump(exclude={"name", "queue_max_messages"}, exclude_none=True)


#: What a queue does not do, whatever its table says.
_NOT_FOR_QUEUES: Final = ("slow_subscriber", "last_value", "retain_s", "retain_bytes", "retain_messages")

if TYPE_CHECKING:
    TopicSettings = _Table
    QueueSettings = _QueueTable
else:

    def _table_of(name: str, base: type[BaseModel], keys: Sequence[str]) -> type[BaseModel]:
        general = {key: GeneralSettings.model_fields[key] for key in keys}
        # `Field()` is there because Annotated needs at least one annotation.
        types = {key: Annotated[one.annotation, Field(), *one.metadata] | None for key, one in general.items()}
        return create_model(name, __base__=base, **{key: (kind, None) for key, kind in types.items()})

    TopicSettings = _table_of("TopicSettings", _Table, PER_TOPIC)
    _per_queue = (*(key for key in PER_TOPIC if key not in _NOT_FOR_QUEUES), "queue_max_messages")
    QueueSettings = _table_of("QueueSettings", _QueueTable, _per_queue)


def _policy(values: Mapping[str, Any]) -> TopicPolicy:
    """The policy for these settings, all of which must be there, by their keys."""
    parts = {name: part(**{field: values[key] for field, key in keys.items()}) for name, (part, keys) in PARTS.items()}
    return TopicPolicy(**{key: values[key] for key in PLAIN}, **parts)


# All of them ---------------------------------------------------------------------------------------------------------


class Contradicting(ValueError):
    """Carries what was found through pydantic, which knows only ValueErrors."""

    def __init__(self, found: Sequence[Contradiction]) -> None:
        super().__init__(" ".join(one.sentence for one in found))
        self.found = found


def _read_tables(value: object) -> object:
    """A file gives tables; an environment variable or a flag gives JSON."""
    return json.loads(value) if isinstance(value, str) else value


@final
class Settings(GeneralSettings):
    topics: Annotated[
        tuple[TopicSettings, ...],
        BeforeValidator(_read_tables),
        Kind("[[topics]] tables in a file, or the same as a JSON list of objects"),
    ] = Field(default=(), description="Exceptions for some topics; only the first table that matches a topic counts")
    queues: Annotated[
        tuple[QueueSettings, ...],
        BeforeValidator(_read_tables),
        Kind("[[queues]] tables in a file, or the same as a JSON list of objects"),
    ] = Field(default=(), description="Queues that are always there, and what differs for them")

    bridges: Annotated[
        tuple[BridgeSettings, ...],
        BeforeValidator(_read_tables),
        Kind("[[bridges]] tables in a file, or the same as a JSON list of objects"),
    ] = Field(default=(), description="Bridges to other brokers: what comes from there and what goes there")

    @model_validator(mode="after")
    def _refusecontradictions(self) -> Settings:
        found = list(contradictions(self))
        wrong = wrong_bridges(self.bridges, can_store=self.database != MEMORY)
        found += [Contradiction(("bridges",), sentence) for sentence in wrong]
        if found:
            raise Contradicting(found)
        return self

    @property
    def lake_place(self) -> str:
        return lake_place(self.lake, self.data)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where clients connect. `host` and `port` are a short form, and the default."""
        endpoints = [Endpoint.parse(text) for text in self.listen]
        if not endpoints or not {"host", "port"}.isdisjoint(self._sources):
            endpoints.insert(0, Endpoint(Scheme.STOMP, self.host, self.port))
        return endpoints

    @property
    def users_path(self) -> Path:
        return Path(self.users_file).expanduser() if self.users_file else self.data / USERS_FILE

    def tls_files(self) -> TlsFiles | None:
        if not self.tls_certificate:
            return None
        return TlsFiles(
            certificate=self.tls_certificate,
            key=self.tls_key,
            client_ca=self.tls_client_ca,
            requires_client_certificate=self.tls_client_certificates is ClientCertificates.REQUIRED,
        )

    @property
    def lease_in_use_s(self) -> float:
        """0 for a broker that knows of no stand-by: it goes on without the database, however long that is away."""
        return self.lease_s if self.standby or "lease_s" in self.model_fields_set else 0.0

    def for_access(self) -> AccessSettings:
        from stompbroker.access import AccessSettings

        return AccessSettings(**self._fields_of(AccessSettings), users_path=self.users_path)

    def for_sessions(self) -> SessionSettings:
        # Imported here, because every command reads settings and only a broker has sessions.
        from stompbroker.sessions import SessionSettings

        times = ("connect_timeout", "transaction_timeout", "block_timeout")
        return SessionSettings(
            limits=Limits(**self._fields_of(Limits)),
            after_frame=b"\n" if self.trailing_lf else b"",
            is_bare_queue=self.unprefixed is Unprefixed.QUEUE,
            **self._fields_of(SessionSettings)
            | {f"{name}_ns": int(getattr(self, f"{name}_s") * NANOSECONDS) for name in times},
        )

    def _fields_of(self, kind: type) -> dict[str, Any]:
        """The settings that a dataclass has under the same name."""
        return {each.name: getattr(self, each.name) for each in fields(kind) if each.name in Settings.model_fields}

    def policy(self, table: TopicSettings | None = None) -> TopicPolicy:
        """The general policy, or that of the topics of one table."""
        return _policy(self._for_topics() | (table.overrides() if table else {}))

    def policies(self) -> TopicPolicies:
        """The policies of all topics, in the order in which they are tried.

        Dead letters have a retention of their own and do not expire, unless a table says so.
        """
        general = self._for_topics()
        dead_letters = general | {
            "retain_s": self.dead_letter_retain_s,
            "retain_bytes": self.dead_letter_retain_bytes,
            "retain_messages": 0,
            "message_ttl_ms": 0,
            "last_value": False,
        }
        overrides = []
        for table in self.topics:
            pattern = parse_pattern(table.pattern)
            base = dead_letters if pattern.is_of_dead_letters else general
            overrides.append((pattern, _policy(base | table.overrides())))
        queues = {}
        for each in self.queues:
            base = dead_letters if each.destination.is_of_dead_letters else general
            most = self.queue_max_messages if each.queue_max_messages is None else each.queue_max_messages
            policy = replace(_policy(base | each.overrides()), queue_max_messages=most, is_declared=True)
            queues[each.destination.name] = policy
        most = self.queue_max_messages
        return TopicPolicies(
            replace(_policy(general), queue_max_messages=most),
            tuple(overrides),
            replace(_policy(dead_letters), queue_max_messages=most),
            queues=queues,
        )

    def _for_topics(self) -> dict[str, Any]:
        """The general value of everything that a table may override."""
        return {key: getattr(self, key) for key in PER_TOPIC}
