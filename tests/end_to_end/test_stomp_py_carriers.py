"""stomp.py over everything that it can be carried over, with every way to log in that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography.x509.oid import NameOID

from tests.end_to_end.stomp_py_client import StompPyClient, connected
from tests.support.broker_process import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess
    from tests.support.certificates import Certificates

MIB = 1024 * 1024
NACK_DELAY_MS = 50
ALICE = ("alice", PASSWORD)

CARRIERS = ["stomp+tls", "ws text", "ws binary", "wss text", "wss binary"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Certificates:
    """With certificates of a client that is a user, and of one that is not."""
    certificates.issue("billing", (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "billing"))
    certificates.issue("stranger", (NameOID.COMMON_NAME, "stranger"))
    return certificates


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Certificates) -> Iterator[BrokerProcess]:
    """One for all tests here: each has a topic of its own."""
    directory = tmp_path_factory.mktemp("broker")
    add_user(directory / "users.toml", "alice", read=[">"], write=[">"])
    add_user(
        directory / "users.toml",
        "billing",
        read=[">"],
        write=[">"],
        password=None,
        certificate="CN=billing,O=Example",
    )
    with running_broker(
        directory,
        listen="stomp+tls://127.0.0.1:0 ws://127.0.0.1:0/ws wss://127.0.0.1:0/ws",
        users_file=directory / "users.toml",
        redelivery_first_delay_ms=NACK_DELAY_MS,
        tls_client_ca=authority.path("ca.pem"),
        **authority.settings(),
    ) as running:
        yield running


def options_for(carrier: str, authority: Certificates, certificate: str | None = None) -> dict[str, Any]:
    scheme, _, kind = carrier.partition(" ")
    options: dict[str, Any] = {}
    if scheme in ("stomp+tls", "wss"):
        options["tls"] = {"ca_certs": authority.path("ca.pem")}
        if certificate is not None:
            options["tls"] |= {
                "cert_file": authority.path(f"{certificate}.pem"),
                "key_file": authority.path(f"{certificate}-key.pem"),
            }
    if kind:
        options["websocket"] = {"ws_path": "/ws", "binary_mode": kind == "binary"}
    return options


def open_client(broker: BrokerProcess, carrier: str, **options: Any) -> StompPyClient:
    return StompPyClient(broker.address_of(carrier.partition(" ")[0]), "1.2", (0, 0), **options)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_messages_are_published_acknowledged_and_redelivered(
    broker: BrokerProcess, authority: Certificates, topic: str, carrier: str
) -> None:
    address = broker.address_of(carrier.partition(" ")[0])
    with connected(address, login=ALICE, **options_for(carrier, authority)) as client:
        client.subscribe(topic, ack="client-individual")
        client.publish(topic, "one", "two", colour="blue")
        one, two = client.inbox.wait_messages(2)
        assert (one.body, one.headers["colour"], two.body) == (b"one", "blue", b"two")

        client.acknowledge(one, receipt="acknowledged")
        client.refuse(two, receipt="refused")

        client.inbox.wait_receipt("acknowledged")
        client.inbox.wait_receipt("refused")
        again = client.inbox.wait_messages(3)[2]
        assert (again.body, again.headers["redelivered"]) == (b"two", "true")
        assert client.inbox.is_undisturbed


@pytest.mark.parametrize("carrier", CARRIERS)
def test_large_and_binary_bodies_arrive_as_they_were_sent(
    broker: BrokerProcess, authority: Certificates, topic: str, carrier: str
) -> None:
    # In messages of text stomp.py can send text only.
    bodies = [b"x" * MIB, "Zwölf 🥊\0".encode()]
    if not carrier.endswith("text"):
        bodies += [bytes(range(256)), bytes(range(256)) * (MIB // 256)]
    address = broker.address_of(carrier.partition(" ")[0])
    with connected(address, login=ALICE, **options_for(carrier, authority)) as client:
        client.subscribe(topic)

        client.publish(topic, *bodies)

        client.inbox.wait_messages(len(bodies))
        assert client.inbox.bodies == bodies


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_wrong_passcode_is_refused(broker: BrokerProcess, authority: Certificates, carrier: str) -> None:
    client = open_client(broker, carrier, **options_for(carrier, authority))
    try:
        client.start_connecting(("alice", "wrong"))

        assert client.inbox.wait_error().headers["message"].startswith("login refused")
        if carrier != "stomp+tls":  # there it does not notice
            client.inbox.wait_disconnected()
    finally:
        client.clean_up()


def test_a_certificate_is_a_login(broker: BrokerProcess, authority: Certificates, topic: str) -> None:
    options = options_for("stomp+tls", authority, "billing")
    with connected(broker.address_of("stomp+tls"), **options) as client:
        client.subscribe(topic)
        client.publish(topic, "by certificate")
        client.inbox.wait_messages(1)

        users = {each["user"] for each in broker.statistics()["connections"]}

        assert users == {"billing"}


@pytest.mark.parametrize("certificate", [None, "stranger"])
def test_without_a_login_or_a_users_certificate_nobody_comes_in(
    broker: BrokerProcess, authority: Certificates, certificate: str | None
) -> None:
    client = open_client(broker, "stomp+tls", **options_for("stomp+tls", authority, certificate))
    try:
        client.start_connecting()

        assert client.inbox.wait_error().headers["message"].startswith("login refused")
    finally:
        client.clean_up()
