"""Which broker `publish` and `subscribe` talk to, and as whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.target import PASSWORD_VARIABLE, TOKEN_VARIABLE, Target, find_target, read_url
from stompbroker.config.loading import CLIENT_VARIABLES
from tests.cli.conftest import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Program, RunningBroker


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file, no terminal and no password of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    for name in (PASSWORD_VARIABLE, TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def login(target: Target) -> tuple[str | None, str | None, str | None]:
    return target.user, target.password, target.token


def found(url: str | None = None, **tls: Path) -> Target:
    return find_target(None, None, url, **tls)


@pytest.mark.parametrize(
    ("url", "endpoint", "user"),
    [
        ("stomp://h", "stomp://h:61613", None),
        ("stomp://h/", "stomp://h:61613", None),
        ("STOMP://h:7000", "stomp://h:7000", None),
        ("stomp+tls://alice@h", "stomp+tls://h:61612", "alice"),
        ("stomp+tls://alice@[::1]", "stomp+tls://[::1]:61612", "alice"),
        ("stomp://alice@[::1]:7000/", "stomp://[::1]:7000", "alice"),
        ("stomp://m%C3%BCller%40x@h", "stomp://h:61613", "müller@x"),
        ("unix:///run/broker.sock", "unix:///run/broker.sock", None),
        ("unix://alice@/run/broker.sock", "unix:///run/broker.sock", "alice"),
        ("unix:///run/a:b@c.sock", "unix:///run/a:b@c.sock", None),
    ],
)
def test_a_url_names_the_broker_and_the_user(url: str, endpoint: str, user: str | None) -> None:
    read, name = read_url(url)

    assert (str(read), name) == (endpoint, user)


@pytest.mark.parametrize(
    "url",
    [
        *("", "h", "h:61613", "stomp://", "stomp://h:x", "stomp://h:70000", "stomp://h/topic", "stomp://h?users=a"),
        *("stomp://@h", "stomp://a%0Ab@h", "stomp://a@b@h", "unix://h", "unix://h/path", "stomp+ssl://h", "http://h"),
    ],
)
def test_what_is_no_url_of_a_broker_is_refused_with_those_that_are(url: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"not the URL of a broker.* stomp://.*61613.*stomp\+tls://.*61612"):
        read_url(url)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_websocket_is_for_others(scheme: str) -> None:
    with pytest.raises(typer.BadParameter, match=rf"{scheme}:// is for browsers.* speaks STOMP directly: stomp://"):
        read_url(f"{scheme}://h/stomp")


@pytest.mark.parametrize(
    "url",
    [
        "stomp://u:swordfish@h",
        "ws://u:swordfish@h",
        "u:swordfish@h",
        "stomp://u:sword/fish@h",
        "stomp://u:a@swordfish@h",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"list of processes.*STOMPBROKER_PASSWORD") as refused:
        read_url(url)

    assert "fish" not in str(refused.value)


def test_without_a_user_nothing_is_asked_or_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)

    assert login(found("stomp://h")) == (None, None, None)


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)

    target = found("stomp+tls://alice@h")

    assert login(target) == ("alice", PASSWORD, None)
    assert PASSWORD not in repr(target)


def test_on_a_terminal_the_password_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = {"Password of alice at unix:///s: ": PASSWORD}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", typed.get)

    assert found("unix://alice@/s").password == PASSWORD


def test_without_any_password_it_is_said_where_one_is_looked_for() -> None:
    with pytest.raises(CommandFailed, match=r"no password for alice\. Set STOMPBROKER_PASSWORD, or .* terminal"):
        found("stomp://alice@h")


@pytest.mark.parametrize("text", ["a\nb", "a\x00b", "a\udcffb"])
def test_a_password_that_no_frame_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("os.environ", {PASSWORD_VARIABLE: text})

    with pytest.raises(CommandFailed, match="STOMPBROKER_PASSWORD has control characters or is not UTF-8"):
        found("stomp://alice@h")


def test_a_token_needs_no_user_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a.b.c")

    assert login(found("stomp://h")) == (None, None, "a.b.c")
    assert login(found("stomp://alice@h")) == ("alice", None, "a.b.c")


def test_a_certificate_needs_no_password() -> None:
    assert login(found("stomp+tls://alice@h", certificate=Path("alice.pem"))) == ("alice", None, None)


def test_the_configuration_knows_the_variables_of_clients() -> None:
    assert {PASSWORD_VARIABLE, TOKEN_VARIABLE} == CLIENT_VARIABLES


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [("stomp://h", True), ("stomp+tls://h", False), ("stomp://[::1]", False), ("unix:///s", False)],
)
def test_a_secret_that_others_could_read_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, is_warned: bool
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a.b.c")

    found(url)

    assert ("stomp+tls:// would encrypt it" in capsys.readouterr().err) == is_warned


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("", "stomp://127.0.0.1:61613"),
        ("stomp://0.0.0.0:7000", "stomp://127.0.0.1:7000"),
        ("unix:///s ws://h:1 stomp://h:2", "stomp://h:2"),
        ("unix:///s?users=a", "unix:///s"),
    ],
)
def test_without_a_url_the_settings_say_where_the_broker_is(
    monkeypatch: pytest.MonkeyPatch, listen: str, endpoint: str
) -> None:
    monkeypatch.setenv("STOMPBROKER_LISTEN", listen)

    assert str(found().endpoint) == endpoint


def test_settings_without_an_endpoint_for_commands_are_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_LISTEN", "ws://127.0.0.1:80")

    with pytest.raises(CommandFailed, match="name one with --url"):
        found()


# The commands


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker at which alice may use the topic a, and nobody else anything."""
    from tests.cli.conftest import program_in

    program = program_in(tmp_path_factory.mktemp("guarded"))
    add_user(program.directory / "data" / "users.toml", "alice", read=["a"], write=["a"])
    with running_broker(program) as broker:
        yield broker


def test_a_user_logs_in(guarded: RunningBroker) -> None:
    url = f"stomp://alice@127.0.0.1:{guarded.port}"

    done = guarded.program.run("publish", "--url", url, "a", "x", STOMPBROKER_PASSWORD=PASSWORD)

    assert (done.returncode, done.stderr) == (0, "")
    assert "all confirmed" in done.stdout


@pytest.mark.parametrize(
    ("user", "password", "destination", "words"),
    [
        ("alice@", "wrong horse", "a", "The broker refused: login refused - wrong login or passcode"),
        ("alice@", PASSWORD, "b", "The broker refused: not allowed - the user 'alice' has no permission to write 'b'"),
        ("", PASSWORD, "a", "Name the user with --url stomp://NAME@127.0.0.1:"),
        ("alice@", "", "a", "There is no password for alice."),
    ],
)
def test_a_refusal_is_a_sentence(
    guarded: RunningBroker, user: str, password: str, destination: str, words: str
) -> None:
    url = f"stomp://{user}127.0.0.1:{guarded.port}"

    done = guarded.program.run("publish", "--url", url, destination, "x", STOMPBROKER_PASSWORD=password)

    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "stomp://h", "--port", "7000"], "leave --host and --port out"),
        (["--url", "stomp://h", "--ca", "ca.pem"], "are for TLS"),
        (["--url", "stomp+tls://h", "--key", "key.pem"], "name that with --certificate"),
    ],
)
def test_options_that_contradict_each_other_are_refused(program: Program, arguments: list[str], words: str) -> None:
    done = program.run("subscribe", *arguments, "t")

    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
