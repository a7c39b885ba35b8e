"""The `[[bridges]]` tables: one for each bridge to another broker.

Law: one table in, a `BridgePlan` or sentences about its mistakes out. Secrets are in files, never in settings.
"""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from stompbroker.bridges import BridgePlan, RemoteKind
from stompbroker.config.settings import HOUR_S, Count, FilePath, Kind, Seconds, check_endpoints
from stompbroker.delivery import DestinationKind, parse_pattern
from stompbroker.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = r"^[A-Za-z0-9_-]{1,40}$"
#: What begins a destination that a bridge may carry.
_PREFIXES: Final = ("/topic/", "/queue/")
#: RabbitMQ's own virtual host, without which it lets nobody in.
_RABBITMQ_HOST: Final = "/"

Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
    Kind('a list of destinations or patterns, such as ["/topic/orders.>", "/queue/jobs"]'),
]
Text = Annotated[str, Kind("a text")]


def _without_login(value: object) -> object:
    """A URL, valid or not, or several, as they may be shown: people write passwords into them."""
    if isinstance(value, str):
        return re.sub("//.*@", "//…@", value, flags=re.DOTALL)
    return [_without_login(each) for each in value] if isinstance(value, list | tuple) else value


Urls = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
    AfterValidator(check_endpoints),
    Kind(
        "a list of URLs, or a text with blanks between them: stomp://HOST:PORT, stomp+tls://HOST:PORT, "
        "ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, unix:///PATH; login and passcode_file say who comes",
        conceal=_without_login,
    ),
]


@final
class BridgeSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    name: Annotated[str, Kind("a name of up to 40 letters, digits, - and _"), Field(pattern=_NAME)]
    url: Annotated[Urls, Field(min_length=1)]
    kind: RemoteKind = RemoteKind.STOMPBROKER
    receive: Patterns = ()
    send: Patterns = ()
    client_id: Text = ""
    login: Text = ""
    passcode_file: FilePath = ""
    token_file: FilePath = ""
    tls_ca: FilePath = ""
    tls_certificate: FilePath = ""
    tls_key: FilePath = ""
    virtual_host: Text = ""
    prefetch: Annotated[Count, Field(ge=1, le=65_535)] = 1_000
    receipt_timeout_s: Annotated[Seconds, Field(ge=1, le=HOUR_S)] = 30.0

    def plan(self) -> BridgePlan:
        files = {name: _path(getattr(self, name)) for name in _FILES}
        default_host = _RABBITMQ_HOST if self.kind is RemoteKind.RABBITMQ else ""
        return BridgePlan(
            name=self.name,
            urls=self.url,
            kind=self.kind,
            receive=self.receive,
            send=self.send,
            client_id=self.client_id or f"bridge-{self.name}",
            login=self.login or None,
            virtual_host=self.virtual_host or default_host or None,
            prefetch=self.prefetch,
            receipt_timeout_s=self.receipt_timeout_s,
            **files,
        )


_FILES: Final = ("passcode_file", "token_file", "tls_ca", "tls_certificate", "tls_key")


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def wrong_bridges(bridges: Sequence[BridgeSettings], *, can_store: bool) -> Iterator[str]:
    """A sentence for each contradiction."""
    first_with: dict[str, int] = {}
    for number, table in enumerate(bridges, start=1):
        place = f'bridges table {number} ("{table.name}")'
        if first_with.setdefault(table.name, number) != number:
            yield f"{place}: table {first_with[table.name]} has this name; choose another."
        yield from (f"{place}: {sentence}" for sentence in _mistakes(table, can_store=can_store))


def _mistakes(table: BridgeSettings, *, can_store: bool) -> Iterator[str]:
    plan = table.plan()
    if not (table.receive or table.send):
        yield "it carries nothing; set receive (what comes from there) or send (what goes there)."
    if table.send and not can_store:
        yield 'send needs a store, to keep what was not sent yet, and database is "memory".'
    if not plan.is_encrypted and (table.tls_ca or table.tls_certificate or table.tls_key):
        yield "it has options for TLS, but its url is not encrypted; use stomp+tls:// or wss://."
    if table.passcode_file and not table.login:
        yield "passcode_file without login; say whose passcode it is."
    for key, patterns, is_ours in (("receive", table.receive, plan.is_ours), ("send", table.send, True)):
        for text in patterns:
            problem = _problem_with(text) if is_ours else _problem_elsewhere(text)
            if problem is not None:
                yield f'{key}: "{text}": {problem}.'
        if len(set(patterns)) < len(patterns):
            yield f"{key} has a pattern twice."
        valid = [text for text in patterns if is_ours and _problem_with(text) is None]
        for text, wider in permutations(dict.fromkeys(valid), 2):
            if parse_pattern(wider).contains(parse_pattern(text)):
                yield f'{key}: "{text}" is part of "{wider}", and would go over the bridge twice; leave it out.'
    for text in set(table.receive) & set(table.send):
        if text.startswith("/queue/"):
            yield (
                f'"{text}" is in receive and in send: each message of a queue is in one place only, and would go to '
                "and fro; leave one of them out."
            )


def _problem_with(text: str) -> str | None:
    if not text.startswith(_PREFIXES):
        return "write /topic/NAME or /queue/NAME"
    try:
        pattern = parse_pattern(text)
    except InvalidDestination as error:
        return str(error)
    if pattern.is_of_dead_letters:
        return "dead letters stay where they are, beside the subscription that failed"
    if pattern.kind is DestinationKind.QUEUE and not pattern.is_exact:
        return "a queue needs its whole name"
    return None


def _problem_elsewhere(text: str) -> str | None:
    return None if text.startswith("/") else "write it as that broker does, such as /topic/orders.#"
