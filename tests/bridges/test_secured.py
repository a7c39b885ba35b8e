"""A bridge to a broker with TLS and login: what is right passes; what is wrong is told clearly, and tried slowly."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import jwt
import pytest
import trio
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from stompbroker.actors.bridge import FIRST_WAIT_S
from stompbroker.cli.bridges import description
from tests.support.bridging import bodies_in, bridged_broker, client_of, connected, free_ports, quiet, until
from tests.support.certificates import Certificates
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stompbroker.broker import Broker

EVENTS: Final = "/topic/events.>"
SECRET: Final = "a secret of at least thirty-two bytes"
#: What each kind of login has in the table, and the user it is at the other broker.
LOGINS: Final[dict[str, dict[str, str]]] = {
    "password": {"login": "london", "passcode_file": "passcode"},
    "token": {"token_file": "token"},
    "certificate": {"tls_certificate": "paris.pem", "tls_key": "paris-key.pem"},
}


#: Long ago, and long after any clock of a test.
PAST_S, FUTURE_S = 1_000_000_000, 4_000_000_000


def write_token(file: Path, *, expires_s: int = FUTURE_S, secret: str = SECRET) -> None:
    file.write_text(jwt.encode({"sub": "london", "exp": expires_s}, secret, "HS256") + "\n")


class Secured:
    """A broker with TLS and login, everything that a bridge may show there, and one that has the bridge."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = Certificates.made_in(directory)
        self.certificates.issue("paris", (NameOID.COMMON_NAME, "paris"))
        (directory / "passcode").write_text(f"{PASSWORD}\n")
        (directory / "keys").write_text(SECRET)
        write_token(directory / "token")
        (directory / "there").mkdir()
        self.here, self.there, self.plain = free_ports(3)

    @asynccontextmanager
    async def other(self, **settings: Any) -> AsyncIterator[Broker]:
        may: dict[str, Any] = {"read": ["events.>"], "write": ["events.>"], "roles": ["bridge"]}
        add_user(self.directory / "there" / "users.toml", "london", certificate="CN=paris", **may)
        endpoints = (f"stomp+tls://0.0.0.0:{self.there}", f"stomp://127.0.0.1:{self.plain}")
        listening = {"listen": endpoints, "token_keys": str(self.directory / "keys")}
        client_ca = {"tls_client_ca": self.certificates.path("ca.pem")}
        given: dict[str, Any] = {**self.certificates.settings(), **client_ca, **listening, **settings}
        async with bridged_broker(self.directory / "there", self.plain, **given) as broker:
            yield broker

    @asynccontextmanager
    async def bridge(self, **table: str) -> AsyncIterator[Broker]:
        """Relative paths are those of files in the directory."""
        paths = {
            name: self.certificates.path(text)
            for name, text in {"tls_ca": "ca.pem", **table}.items()
            if name.startswith("tls_") or name.endswith("_file")
        }
        url = f"stomp+tls://127.0.0.1:{self.there}"
        both: dict[str, Any] = {"name": "there", "url": url, "send": [EVENTS], "receive": [EVENTS], **table, **paths}
        async with bridged_broker(self.directory / "here", self.here, both) as broker:
            yield broker


@pytest.mark.parametrize("login", LOGINS)
async def test_right_ones_pass_messages_both_ways(tmp_path: Path, login: str) -> None:
    secured = Secured(tmp_path)
    async with (
        secured.other(),
        secured.bridge(**LOGINS[login]) as broker,
        client_of(secured.plain, login="london", passcode=PASSWORD, client_id="reader") as there,
        client_of(secured.here, client_id="reader") as here,
    ):
        await connected(broker)
        for client in (here, there):
            async with client.subscribe(EVENTS, durable="all"):
                pass

        await here.publish("/topic/events.a", b"from here")
        await there.publish("/topic/events.a", b"from there")
        await quiet(broker)

        for client in (here, there):
            assert sorted(await bodies_in(client, EVENTS, 2)) == [b"from here", b"from there"]


#: What is wrong about the table or the files, and what is said then.
WRONG: Final[dict[str, tuple[dict[str, str], str]]] = {
    "unknown authority": ({"tls_ca": "paris.pem"}, "The certificate of 127.0.0.1:{port} cannot be verified: "),
    "no file": ({"tls_ca": "missing.pem"}, "missing.pem (ca) cannot be used: No such file or directory"),
    "wrong host": ({"url": "stomp+tls://127.0.0.2:{port}"}, "certificate of 127.0.0.2:{port} is not for 127.0.0.2."),
    "wrong password": ({"login": "london", "passcode_file": "wrong"}, "wrong login or passcode"),
    "no passcode": ({"login": "london", "passcode_file": "missing"}, "missing cannot be read: No such file"),
    "expired token": ({"token_file": "expired"}, "login refused - the token is refused: it has expired\n"),
    "forged token": ({"token_file": "forged"}, "login refused"),
    "other's certificate": ({"tls_certificate": "eve.pem", "tls_key": "eve-key.pem"}, "login refused"),
    "key of another": ({"tls_certificate": "paris.pem", "tls_key": "eve-key.pem"}, "and its key cannot be used"),
    "nothing": ({}, "login refused"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_ones_are_told_and_tried_slowly(tmp_path: Path, case: str) -> None:
    table, said = WRONG[case]
    secured = Secured(tmp_path)
    secured.certificates.issue("eve", (NameOID.COMMON_NAME, "eve"))
    (tmp_path / "wrong").write_text("a wrong password")
    write_token(tmp_path / "expired", expires_s=PAST_S)
    write_token(tmp_path / "forged", secret=SECRET[::-1])
    table = {key: text.format(port=secured.there) for key, text in table.items()}
    with capture_logs() as logged:
        began_at = trio.current_time()
        async with secured.other(), secured.bridge(**table) as broker:
            await until(lambda: all(crossing.failures >= 2 for crossing in broker.crossings))
            # Chance takes at most half of a wait.
            assert trio.current_time() - began_at >= FIRST_WAIT_S / 2
            answer = await broker.control.call("bridges", {})
    shown = "\n".join(description(answer["bridges"], datetime.now(UTC), width=None))
    expected = said.format(port=secured.there)
    assert "\\" not in shown, "what a broker says is shown as it was meant"
    assert shown.count(expected) == len(broker.crossings) == 2, shown
    assert shown.count("retrying") == 2
    warnings = [line for line in logged if line["event"].startswith("bridge is not connected")]
    assert [expected.strip() in line["reason"] for line in warnings] == [True, True], warnings
    for secret in (PASSWORD, "a wrong password", SECRET):
        assert secret not in shown + str(logged)
