"""Endpoints, as people write them."""

from __future__ import annotations

import re
from ipaddress import ip_network

import pytest

from stompbroker.errors import OperatorError
from stompbroker.transport import Endpoint, Restrictions, Scheme


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
    ("text", "endpoint", "address"),
    [
        ("stomp+tls://h:61612", Endpoint(Scheme.STOMP_TLS, "h", 61612), "h:61612"),
        ("ws://h:15674/ws", Endpoint(Scheme.WS, "h", 15674, "/ws"), "h:15674"),
        ("wss://[::1]:443/", Endpoint(Scheme.WSS, "::1", 443, "/"), "[::1]:443"),
        ("unix:///run/stomp.sock", Endpoint(Scheme.UNIX, path="/run/stomp.sock"), "/run/stomp.sock"),
    ],
)
def test_there_are_other_schemes(text: str, endpoint: Endpoint, address: str) -> None:
    assert Endpoint.parse(text) == endpoint
    assert str(endpoint) == text
    assert endpoint.address == address


def test_a_websocket_without_a_path_is_at_the_root() -> None:
    assert Endpoint.parse("ws://h:1") == Endpoint.parse("ws://h:1/")


def test_who_may_come_in_follows_a_question_mark() -> None:
    text = "ws://h:1/ws?max_connections=5&users=alice,bob&origin=https://a.example,https%3A%2F%2Fb.example&proxy=::1,10.0.0.0/8"

    endpoint = Endpoint.parse(text)

    assert endpoint.restrictions == Restrictions(
        max_connections=5,
        users=frozenset({"alice", "bob"}),
        origins=frozenset({"https://a.example", "https://b.example"}),
        proxies=(ip_network("::1"), ip_network("10.0.0.0/8")),
    )
    assert str(endpoint) == "ws://h:1/ws"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "stomp://h:1?heart-beat=1",
            "'heart-beat=1' is not an option. Possible are max_connections, users, origin, pro",
        ),
        ("stomp://h:1?users", "'users' is not an option"),
        ("stomp://h:1?users=", "'users=' is not an option"),
        ("stomp://h:1?max_connections=0", "max_connections: '0' is not a whole number from 1 to 1000000"),
        ("stomp://h:1?max_connections=many", "max_connections: 'many' is not a whole number"),
        ("stomp://h:1?proxy=10.0.0.1/8", "proxy: 10.0.0.1/8 has host bits set"),
        ("stomp://h:1?proxy=everybody", "proxy: 'everybody' does not appear to be an IPv4 or IPv6 network"),
        ("stomp://h:1?origin=*", "origin is for ws:// and wss://"),
        ("unix:///s?proxy=::1", "proxy is for endpoints on a network"),
        ("unix://s", "does not name the whole path of a socket"),
        ("unix:///" + "x" * 107, "of at most 107 bytes"),
    ],
)
def test_an_option_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(complaint)):
        Endpoint.parse(text)


@pytest.mark.parametrize("text", ["http://localhost:80", "https://localhost:80", "tcp://localhost:61613"])
def test_the_scheme_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=r"cannot serve .*Possible are stomp://HOST:PORT, stomp\+tls://"):
        Endpoint.parse(text)


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("stomp://127.0.0.5:1", True),
        ("stomp://[::1]:1", True),
        ("ws://localhost:1", True),
        ("unix:///s", True),
        ("stomp://0.0.0.0:1", False),
        ("stomp://[::]:1", False),
        ("stomp://broker.example:1", False),
        ("stomp://localhost.example:1", False),
    ],
)
def test_what_only_this_machine_can_reach_is_known(text: str, is_loopback: bool) -> None:
    assert Endpoint.parse(text).is_loopback is is_loopback


@pytest.mark.parametrize("text", ["", "localhost", "localhost:61613", "61613", "://x:1", "stomp:/x:1"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=r"is not an endpoint\. Possible are stomp://HOST:PORT"):
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
        "local host:61613",
        "localhost:61613\n",
    ],
)
def test_an_address_without_host_and_port_or_with_more_is_refused(address: str) -> None:
    with pytest.raises(OperatorError, match=r"does not name a host and a port up to 65535\. Possible are stomp"):
        Endpoint.parse(f"stomp://{address}")


def test_only_a_websocket_has_a_path() -> None:
    with pytest.raises(OperatorError, match="only ws:// and wss:// have a path"):
        Endpoint.parse("stomp://h:1/path")


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(OperatorError) as refused:
        Endpoint.parse("stomp://" + "x" * 10_000)

    assert len(str(refused.value)) < 500
