"""A [[bridges]] table that cannot work is refused, with what is wrong; none of its secrets is a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stompbroker.bridges import RemoteKind
from stompbroker.config import MEMORY, BridgeSettings, SettingsError, effective, load

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[[bridges]]
name = "london"
url = "stomp+tls://london.example:61612"
receive = ["/topic/orders.>"]
send = ["/topic/prices.>", "/queue/jobs"]
login = "paris"
passcode_file = "/run/secrets/london"
tls_ca = "/etc/london.pem"
"""


def mistakes(path: Path, text: str, **flags: Any) -> str:
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(path, flags=flags)
    return str(caught.value)


def test_a_table_is_a_plan(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(WHOLE)

    settings = load(tmp_path / "s.toml")

    plan = settings.bridges[0].plan()
    assert (plan.urls, plan.kind, plan.client_id) == (
        ("stomp+tls://london.example:61612",),
        RemoteKind.STOMPBROKER,
        "bridge-london",
    )
    assert (plan.receive, plan.send) == (("/topic/orders.>",), ("/topic/prices.>", "/queue/jobs"))
    assert str(plan.passcode_file) == "/run/secrets/london"
    assert next(one.shown for one in effective(settings) if one.key == "bridges") == "london"


def test_rabbitmq_has_a_virtual_host() -> None:
    table = BridgeSettings(name="r", url=("stomp://r:61613",), kind=RemoteKind.RABBITMQ, receive=("/topic/a.#",))
    assert table.plan().virtual_host == "/"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('name = "a"\nsend = ["/topic/a"]', "bridges table 1: url is missing"),
        ('url = "stomp://x:1"\nsend = ["/topic/a"]', "bridges table 1: name is missing"),
        ('name = "a b"\nurl = "stomp://x:1"', "letters, digits"),
        ('name = "a"\nurl = "http://x:1"\nsend = ["/topic/a"]', "bridges table 1: url"),
        ('name = "a"\nurl = "stomp://x:1"\nkind = "kafka"', "stompbroker, rabbitmq, activemq"),
        ('name = "a"\nurl = "stomp://x:1"\npasscode = "x"', 'unknown key "passcode"'),
        ('name = "a"\nurl = "stomp://x:1"', "it carries nothing"),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["orders"]', 'send: "orders": write /topic/NAME or /queue/NAME'),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/queue/*"]', 'send: "/queue/*"'),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/topic/DLQ.>"]', "dead letters stay"),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/topic/a", "/topic/a"]', "send has a pattern twice"),
        (
            'name = "a"\nurl = "stomp://x:1"\nsend = ["/topic/a.>", "/topic/a.*"]',
            '"/topic/a.*" is part of "/topic/a.>"',
        ),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/queue/a"]\nreceive = ["/queue/a"]', "to and fro"),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/topic/a"]\ntls_ca = "x"', "its url is not encrypted"),
        ('name = "a"\nurl = "stomp://x:1"\nsend = ["/topic/a"]\npasscode_file = "x"', "passcode_file without login"),
        ('name = "a"\nurl = "stomp://x:1"\nkind = "rabbitmq"\nreceive = ["a.#"]', "as that broker does"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, table: str, said: str) -> None:
    assert said in mistakes(tmp_path / "s.toml", f"[[bridges]]\n{table}\n")


@pytest.mark.parametrize("url", ['"stomp://paris:sword/fish@x:1"', '["stomp://x:1", "stomp://paris:swordfish@x:1"]'])
def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    said = mistakes(tmp_path / "s.toml", f'[[bridges]]\nname = "a"\nurl = {url}\nsend = ["/topic/a"]\n')

    assert "stomp://…@x:1" in said
    assert "passcode_file" in said
    assert "fish" not in said


def test_two_bridges_have_two_names(tmp_path: Path) -> None:
    assert "table 1 has this name" in mistakes(tmp_path / "s.toml", WHOLE + WHOLE)


def test_sending_needs_a_store(tmp_path: Path) -> None:
    assert "send needs a store" in mistakes(tmp_path / "s.toml", WHOLE, database=MEMORY)
