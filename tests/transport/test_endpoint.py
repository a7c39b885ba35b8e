"""Endpoints, as people write them."""

from __future__ import annotations

import pytest

from stompbroker.errors import OperatorError
from stompbroker.transport import Endpoint, Scheme


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("stomp://127.0.0.1:61613", "127.0.0.1", 61613),
        ("stomp://localhost:0", "localhost", 0),
        ("stomp://broker-1.example.org:65535", "broker-1.example.org", 65535),
        ("stomp://[::1]:7000", "::1", 7000),
        ("stomp://[::]:7000", "::", 7000),
        ("stomp://[fe80::1%eth0]:7000", "fe80::1%eth0", 7000),
    ],
)
def test_an_endpoint_is_read_and_written_the_same_way(text: str, host: str, port: int) -> None:
    endpoint = Endpoint.parse(text)

    assert endpoint == Endpoint(Scheme.STOMP, host, port)
    assert str(endpoint) == text
    assert endpoint.address == text.removeprefix("stomp://")


def test_the_case_of_a_scheme_does_not_matter() -> None:
    assert str(Endpoint.parse("STOMP://localhost:61613")) == "stomp://localhost:61613"


@pytest.mark.parametrize(
    "text", ["stomp+tls://localhost:61612", "ws://localhost:15674/ws", "wss://localhost/ws", "unix:///run/stomp.sock"]
)
def test_another_scheme_is_refused_with_what_is_possible(text: str) -> None:
    scheme = text.partition(":")[0]

    with pytest.raises(OperatorError) as refused:
        Endpoint.parse(text)

    assert str(refused.value) == (
        f"'{text}': the broker cannot serve {scheme}:// to its clients. "
        "Possible is stomp://HOST:PORT, with an IPv6 address in brackets, such as stomp://[::1]:61613."
    )


@pytest.mark.parametrize("text", ["http://localhost:80", "tcp://localhost:61613"])
def test_the_scheme_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=r"cannot serve .*Possible is stomp://HOST:PORT"):
        Endpoint.parse(text)


@pytest.mark.parametrize("text", ["", "localhost", "localhost:61613", "61613", "://x:1", "stomp:/x:1"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=r"is not an endpoint\. Possible is stomp://HOST:PORT"):
        Endpoint.parse(text)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":61613",
        "localhost:",
        "localhost:stomp",
        "localhost:65536",
        "localhost:-1",
        "localhost:\u0661",
        "::1:61613",
        "[::1]",
        "[localhost]:61613",
        "user@localhost:61613",
        "localhost:61613/",
        "localhost:61613/path",
        "localhost:61613?heart-beat=1",
        "local host:61613",
        "localhost:61613\n",
    ],
)
def test_an_address_without_host_and_port_or_with_more_is_refused(address: str) -> None:
    with pytest.raises(OperatorError, match=r"does not name a host and a port up to 65535\. Possible is stomp"):
        Endpoint.parse(f"stomp://{address}")


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(OperatorError) as refused:
        Endpoint.parse("stomp://" + "x" * 10_000)

    assert len(str(refused.value)) < 400
