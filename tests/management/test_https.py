"""The management endpoint with TLS, and when it is served to others at all."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx
import pytest
import trio
from structlog.testing import capture_logs

from stompbroker.config import Settings
from stompbroker.config.exposure import refuse_exposure
from stompbroker.errors import OperatorError
from stompbroker.management import server
from stompbroker.transport import Tls
from tests.management.asker import served
from tests.management.test_events import Stream, connected, until
from tests.support.broker_process import running_broker as running_process
from tests.support.broker_under_test import running_broker
from tests.support.certificates import Certificates
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a-token-that-nobody-guesses"


async def test_everything_is_there_over_tls(certificates: Certificates) -> None:
    tls = Tls(certificates.files())
    async with running_broker() as broker, served(broker, tls=tls, trust=certificates.for_client()) as ask:
        assert (await ask.get("/overview"))["broker"]["state"] == "running"
        await ask.post("/collector/run")
        for path in ("/", "/metrics", "/health/ready"):
            assert (await ask.client.get(path)).status_code == 200
        async with connected(ask) as connection:
            stream = Stream(trio.SSLStream(connection, certificates.for_client(), server_hostname="127.0.0.1"))
            assert (await stream.ask({})).status_code == 200
            for _ in range(2):
                assert (await stream.next())[0] == "overview"
        await until(lambda: broker.parts.control.sampler.watchers == 0, "it is noticed that it has left")


async def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    certificates = Certificates.made_in(tmp_path)
    tls = Tls(certificates.files())
    old = certificates.for_client()
    async with running_broker() as broker, served(broker, tls=tls, trust=old) as ask:
        await ask.get("/me")
        certificates = Certificates.made_in(tmp_path)
        tls.reload()
        await ask.get("/me")  # over the connection that is open
        async with httpx.AsyncClient(base_url=ask.client.base_url, verify=old, trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/health/live")
        async with httpx.AsyncClient(
            base_url=ask.client.base_url, verify=certificates.for_client(), trust_env=False
        ) as client:
            assert (await client.get("/health/live")).status_code == 200


async def test_a_handshake_that_never_ends_is_cut_off(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_S", 0.1)
    tls = Tls(certificates.files())
    async with running_broker() as broker, served(broker, tls=tls, trust=certificates.for_client()) as ask:
        for beginning in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with capture_logs() as lines, trio.fail_after(HARD_TIMEOUT_S):
                async with connected(ask) as silent:
                    await silent.send_all(beginning)
                    while await silent.receive_some():
                        pass  # perhaps an alert
            assert not lines, lines
        await ask.get("/me")


async def test_handshakes_that_never_end_make_room_for_others(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(server, "HANDSHAKE_S", HARD_TIMEOUT_S)
    tls = Tls(certificates.files())
    async with running_broker() as broker, served(broker, tls=tls, trust=certificates.for_client()) as ask:
        async with connected(ask), connected(ask), connected(ask):
            await ask.get("/me")


def test_a_process_with_users_and_tls_serves_others(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "data").mkdir()
    add_user(tmp_path / "data" / "users.toml", "olga", roles=["operator"])
    with running_process(
        tmp_path,
        http_host="0.0.0.0",
        http_tls="true",
        tls_certificate=certificates.path("server.pem"),
        tls_key=certificates.path("server-key.pem"),
    ) as process:
        started = process.wait_logged("broker is starting")
        assert started["management"].startswith("https://0.0.0.0:")
        port = started["management"].rpartition(":")[2]
        with httpx.Client(
            base_url=f"https://127.0.0.1:{port}", verify=certificates.for_client(), trust_env=False
        ) as client:
            assert client.get("/api/v1/overview").status_code == 401
            overview = client.get("/api/v1/overview", auth=("olga", PASSWORD)).json()
        assert overview["listening"] == [*started["listening"], started["management"]]
        assert "plain text" not in process.log()


def test_passwords_as_plain_text_on_a_network_are_warned_of(tmp_path: Path) -> None:
    with running_process(tmp_path, http_host="0.0.0.0", http_token=TOKEN) as process:
        (warning,) = [line for line in process.log().splitlines() if "plain text" in line]
    assert "set http_tls" in warning


def test_who_serves_management_to_others_needs_users_or_a_token() -> None:
    exposed = Settings(http_host="0.0.0.0")
    with pytest.raises(OperatorError, match=r"users add NAME .* --role operator; or set http_token"):
        refuse_exposure(exposed, has_login=False)
    for settings, has_login in (
        (exposed, True),
        (Settings(http_host="0.0.0.0", http_token=TOKEN), False),
        (Settings(http_host="0.0.0.0", http_token_file="token"), False),
        (Settings(http_host="0.0.0.0", http_enabled=False), False),
        (Settings(http_host="127.0.0.9"), False),
    ):
        refuse_exposure(settings, has_login=has_login)


async def test_who_does_not_trust_the_certificate_is_not_our_concern(certificates: Certificates) -> None:
    tls = Tls(certificates.files())
    async with running_broker() as broker, served(broker, tls=tls, trust=ssl.create_default_context()) as ask:
        with capture_logs() as lines, pytest.raises(httpx.ConnectError):
            await ask.client.get("/health/live")
        assert not lines
