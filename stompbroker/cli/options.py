"""Options that several commands share, and how their values are checked. Imports only Typer at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stompbroker.delivery import Pattern

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Settings file.", show_default="stompbroker.toml if it exists"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Data directory of the broker.", show_default="from the settings, ./data"
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help='postgresql+psycopg://…, or "memory" to store nothing. Other users of this machine can see options: '
        "put a password into STOMPBROKER_DATABASE or the settings file instead.",
        show_default="stompbroker.db in the data directory",
    ),
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="Another header; can be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]


def data_directory(data: Path | None, config: Path | None) -> Path:
    """The directory of the broker to ask: as given, or from the settings."""
    from stompbroker.config import load

    return load(config, flags={"data": data}).data


def read_origin(given: str) -> str:
    """The topic that dead letters come from: `orders` for orders, DLQ.orders and the same behind /topic/; or the queue,
    `/queue/orders` for /queue/orders and /queue/DLQ.orders."""
    topic = read_topic(given)
    if not topic.is_of_dead_letters:
        return topic.key
    if len(topic.segments) == 1:
        raise typer.BadParameter(f'"{given}" does not say whose dead letters: DLQ.orders are those of orders')
    return topic.origin.key


def read_topic(given: str) -> "Pattern":
    from stompbroker.delivery import parse_shown_topic
    from stompbroker.errors import InvalidDestination

    try:
        return parse_shown_topic(given)
    except InvalidDestination as error:
        raise typer.BadParameter(str(error), param_hint="TOPIC") from None


def read_pattern(given: str) -> "Pattern":
    """`orders`, `orders.>`, and the same behind /topic/."""
    from stompbroker.delivery import DestinationKind, parse_pattern
    from stompbroker.errors import InvalidDestination

    try:
        pattern = parse_pattern(given if given.startswith("/") else f"/topic/{given}")
    except InvalidDestination as error:
        raise typer.BadParameter(str(error), param_hint="PATTERN") from None
    if pattern.kind is not DestinationKind.TOPIC:
        raise typer.BadParameter(f'"{given}" is no pattern of topics', param_hint="PATTERN")
    return pattern


def read_headers(given: list[str] | None, *, reserved: dict[str, str]) -> list[tuple[str, str]]:
    """Pairs from NAME:VALUE texts. `reserved`: headers that the command sets itself → what to use instead."""
    headers = []
    for text in given or []:
        require_utf8(text, "--header")
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise typer.BadParameter(f'"{text}" is not of the form NAME:VALUE', param_hint="--header")
        if name in reserved:
            raise typer.BadParameter(f'the header "{name}" is set by {reserved[name]}', param_hint="--header")
        headers.append((name, value))
    return headers


def require_utf8(text: str, parameter: str) -> None:
    """Refuse what no frame can carry: bytes that are not UTF-8 arrive from the shell as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("is not valid UTF-8", param_hint=parameter) from None
