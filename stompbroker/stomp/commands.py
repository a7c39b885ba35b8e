"""The commands a client may send, and what each must carry.

Law: a table of the specification and one function that holds a head against it. Whether a command is legal *now*
is the business of `states`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.stomp.frame import Frame, Head

__all__ = ["CLIENT_COMMANDS", "REQUIRED_HEADERS", "CommandRule", "forbid_body", "require_headers"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule:
    """What one command must carry, by version. An absent version means: not defined there."""

    required: Mapping[Version, tuple[str, ...]]


def _in_all(*names: str) -> Mapping[Version, tuple[str, ...]]:
    return dict.fromkeys(Version, names)


#: STOMP 1.2, "Client Frames"; the older versions' differences in line.
CLIENT_COMMANDS: Mapping[str, CommandRule] = {
    # `accept-version` and `host` are required by 1.2 on paper, but 1.0 clients know neither and stompjs omits `host`.
    "CONNECT": CommandRule(required=_in_all()),
    "STOMP": CommandRule(required=_in_all()),
    "SEND": CommandRule(required=_in_all("destination")),
    "SUBSCRIBE": CommandRule(
        required={
            Version.V1_0: ("destination",),
            Version.V1_1: ("destination", "id"),
            Version.V1_2: ("destination", "id"),
        }
    ),
    # 1.0 names a subscription by `id` or by `destination`; the session says so when both are missing.
    "UNSUBSCRIBE": CommandRule(required={Version.V1_0: (), Version.V1_1: ("id",), Version.V1_2: ("id",)}),
    "ACK": CommandRule(
        required={
            Version.V1_0: ("message-id",),
            Version.V1_1: ("message-id", "subscription"),
            Version.V1_2: ("id",),
        }
    ),
    "NACK": CommandRule(required={Version.V1_1: ("message-id", "subscription"), Version.V1_2: ("id",)}),
    "BEGIN": CommandRule(required=_in_all("transaction")),
    "COMMIT": CommandRule(required=_in_all("transaction")),
    "ABORT": CommandRule(required=_in_all("transaction")),
    "DISCONNECT": CommandRule(required=_in_all()),
}


#: The same by version, as it is looked up for every head: command → headers it must have.
REQUIRED_HEADERS: Mapping[Version, Mapping[str, tuple[str, ...]]] = {
    version: {command: rule.required[version] for command, rule in CLIENT_COMMANDS.items() if version in rule.required}
    for version in Version
}


def require_headers(head: Head, version: Version) -> None:
    """Raise PeerViolation unless the head has a command of this version and all headers it must have."""
    rule = CLIENT_COMMANDS.get(head.command)
    if rule is None:
        raise PeerViolation(
            "unknown command",
            f"{head.command[:40]!r} is not a command; a client may send {', '.join(CLIENT_COMMANDS)}",
        )
    required = rule.required.get(version)
    if required is None:
        defined_in = ", ".join(known.value for known in rule.required)
        raise PeerViolation(
            f"{head.command} is not part of STOMP {version.value}",
            f"this connection negotiated STOMP {version.value}; {head.command} exists in {defined_in}",
        )
    missing = [name for name in required if name not in head.headers]
    if missing:
        raise PeerViolation(
            f"{head.command} needs the header {missing[0]!r}",
            f"in STOMP {version.value} {head.command} must carry: {', '.join(required)}; missing: {', '.join(missing)}",
        )


def forbid_body(frame: Frame, version: Version) -> None:
    """Raise PeerViolation if a frame that may have none carries a body. 1.0 says that such a body is ignored."""
    if frame.body and version is not Version.V1_0:
        raise PeerViolation(
            f"{frame.command} must not have a body",
            f"{len(frame.body)} bytes came with it; only SEND may carry a body",
            receipt=frame.receipt,
        )
