"""`stompbroker config`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from stompbroker.config import Settings

if TYPE_CHECKING:
    from tests.cli.conftest import Program


def test_every_setting_is_shown_with_its_value_source_and_meaning(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text('memory_limit = "1 GiB"')

    done = program.run("config", STOMPBROKER_PORT="7000")

    assert done.returncode == 0
    table = done.stdout.partition("\n\n")[0].splitlines()[1:]
    rows = {line.split()[0]: line for line in table if line[0] != " "}
    assert list(rows) == list(Settings.model_fields)
    assert "7000" in rows["port"]
    assert "environment STOMPBROKER_PORT" in rows["port"]
    assert "1 GiB" in rows["memory_limit"]
    assert "file stompbroker.toml" in rows["memory_limit"]
    assert "default" in rows["max_waiting"]
    assert "redelivery" in rows["max_waiting"] or "again" in rows["max_waiting"]


def test_json_has_plain_values(program: Program) -> None:
    (program.directory / "other.toml").write_text('window_bytes = "1 MiB"\n[[topics]]\npattern = "a"')

    done = program.run("config", "--config", "other.toml", "--json")

    settings = json.loads(done.stdout)
    assert settings["window_bytes"]["value"] == 1024**2
    assert settings["window_bytes"]["source"] == "file other.toml"
    assert settings["topics"]["value"] == [{"pattern": "a"}]
    assert settings["slow_subscriber"]["value"] == "block"
    assert settings["data"]["value"] == "data"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_password_is_not_shown(program: Program, form: list[str]) -> None:
    done = program.run(
        "config", *form, STOMPBROKER_DATABASE="postgresql+psycopg://u:swordfish@h/d?sslpassword=swordfish"
    )

    assert done.returncode == 0
    assert "postgresql+psycopg://u:***@h/d?sslpassword=***" in done.stdout
    assert "swordfish" not in done.stdout + done.stderr


def test_it_says_where_clients_connect(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text('listen = ["unix:///run/broker.sock?users=a"]')

    shown = program.run("config").stdout
    with_port = json.loads(program.run("config", "--json", STOMPBROKER_PORT="7000").stdout)["listen"]

    assert '["unix:///run/broker.sock?users=a"]' in shown
    assert shown.endswith("\nClients connect at unix:///run/broker.sock\n")
    assert with_port["value"] == ["unix:///run/broker.sock?users=a"]
    assert with_port["endpoints"] == ["stomp://127.0.0.1:7000", "unix:///run/broker.sock"]


def test_what_a_client_logs_in_with_is_no_setting(program: Program) -> None:
    done = program.run("config", STOMPBROKER_PASSWORD="swordfish", STOMPBROKER_TOKEN="swordfish")

    assert done.returncode == 0
    assert "swordfish" not in done.stdout


def test_an_endpoint_that_is_none_is_named_with_the_reason(program: Program) -> None:
    done = program.run("config", STOMPBROKER_LISTEN="stomp://127.0.0.1:1 stomp://127.0.0.1:2?origin=*")

    assert done.returncode == 2
    assert (
        "  - listen (environment STOMPBROKER_LISTEN): 'stomp://127.0.0.1:2?origin=*': origin is for ws://"
        in done.stderr
    )


def test_mistakes_are_shown_without_a_traceback(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text("prot = 1\nmax_waiting = 0")

    done = program.run("config")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "stompbroker: These settings cannot be used:",
        '  - unknown key "prot" in file stompbroker.toml; did you mean "port"?',
        "  - max_waiting = 0 (file stompbroker.toml): allowed is a whole number from 1 to 10000000",
    ]
