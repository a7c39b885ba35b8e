"""Everything that `docker-compose.yml` names exists: commands, options, settings, paths, ports, build targets.

Law: no container is started, because there cannot be one on every machine; the file is compared with the program, the
settings, the Dockerfile and Spark's own classes. What prepares the first start is run as it stands.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from stompbroker.access import AccessSettings, Authenticator, Credentials, LoginRefused, Right
from stompbroker.cli.application import make_application
from stompbroker.clock import Clock
from stompbroker.config import ENVIRONMENT_PREFIX, Settings, load
from stompbroker.config.exposure import refuse_exposure
from stompbroker.delivery import parse_pattern
from stompbroker.errors import OperatorError
from stompbroker.transport import Endpoint, Tls

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}

#: The brokers, of which one serves.
OURS_ON_STORE = ("broker", "standby")

#: What Typer raises for a command line that is none; the only one of its kinds with a public name is a special case.
UsageError = typer.BadParameter.__bases__[0]

#: What is given to `${…}`, and nowhere else.
SUBSTITUTED = {
    *("STOMPBROKER_DATABASE_PASSWORD", "STOMPBROKER_HTTP_TOKEN", "STOMPBROKER_USER"),
    "STOMPBROKER_PASSWORD",  # empty by default: one of chance is made
}

#: Modules that are started in place of the program, and what of Spark reads the options that they pass on.
SPARK_ARGUMENTS = {
    "org.apache.spark.deploy.master.Master": "org/apache/spark/deploy/master/MasterArguments.class",
    "org.apache.spark.deploy.worker.Worker": "org/apache/spark/deploy/worker/WorkerArguments.class",
}


def prepare_script() -> str:
    """As the shell gets it: Compose makes one dollar of two."""
    (script,) = SERVICES["prepare"]["command"]
    assert "$" not in script.replace("$$", "")
    return str(script).replace("$$", "$")


def stages() -> dict[str, str]:
    """The text of each stage of the Dockerfile, with that of those it begins from."""
    found: dict[str, str] = {}
    for part in re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]:
        head = re.match(r"FROM (\S+) AS (\S+)", part)
        assert head, part
        found[head[2]] = found.get(head[1], "") + part
    return found


def command_lines() -> list[list[str]]:
    """Each command of ours that is run in a container, without the name of the program."""
    lines = [service["command"] for service in OURS.values() if "command" in service and "entrypoint" not in service]
    lines += [shlex.split(line) for line in re.findall(r"stompbroker (.*)", prepare_script().replace("\\\n", ""))]
    checks = [service["healthcheck"]["test"] for service in OURS.values() if "healthcheck" in service]
    lines += [words[2:] for words in checks if words[:2] == ["CMD", "stompbroker"]]
    for found in re.findall(r"(?m)^(?:HEALTHCHECK .*)?CMD (\[.*\])$", DOCKERFILE):
        lines.append([word for word in yaml.safe_load(found) if word != "stompbroker"])
    return list({" ".join(words): words for words in lines}.values())


def documented_lines() -> list[list[str]]:
    """The commands that the file's first lines tell people to type."""
    text = (ROOT / "docker-compose.yml").read_text().partition("services:")[0]
    inside = re.findall(r"docker compose exec \S+ stompbroker (.*)", text)
    inside += re.findall(r"docker compose run --rm report (.*)", text)
    inside += re.findall(r"#   stompbroker (.*)", text)
    return [shlex.split(line) for line in inside]


def parse(words: list[str]) -> None:
    """Let Typer read a command line, without running it. Raises UsageError if that is none."""
    # Typer's groups are of a Click of its own, which has no public name.
    program: Any = typer.main.get_command(make_application())
    with program.make_context("stompbroker", list(words)) as context:
        name, command, rest = program.resolve_command(context, list(words))
        if hasattr(command, "resolve_command") and not rest[0].startswith("-"):
            name, command, rest = command.resolve_command(context, rest)
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_every_command_and_option_exists(words: list[str]) -> None:
    parse(words)


def test_commands_in_the_comments_exist() -> None:
    assert len(documented_lines()) == 6
    for words in documented_lines():
        parse(words)


def test_a_command_that_does_not_exist_would_be_found() -> None:
    for words in (["reprot"], ["report", "--nigthly"], ["serve", "--data"], ["users", "ad"], ["users", "rm", "--al"]):
        with pytest.raises(UsageError):
            parse(words)


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_with_an_allowed_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables: dict[str, str] = OURS[name].get("environment", {})
    if name == "prepare":  # these are the script's
        variables = {}
    for variable, text in variables.items():
        assert variable.removeprefix(ENVIRONMENT_PREFIX).lower() in Settings.model_fields, variable
        monkeypatch.setenv(variable, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))

    settings = load()

    assert settings.lake_place == ("/lake" if "STOMPBROKER_LAKE" in variables else settings.lake_place)


def test_every_substituted_variable_has_a_default_and_is_known() -> None:
    text = (ROOT / "docker-compose.yml").read_text()

    assert set(re.findall(r"\$\{(\w+):-[^}]*\}", text)) == SUBSTITUTED
    assert len(re.findall(r"\$\{", text)) == len(re.findall(r"\$\{\w+:-[^}]*\}", text))


@pytest.mark.parametrize("name", OURS)
def test_every_build_target_is_a_stage_and_every_path_a_directory_in_it(name: str) -> None:
    build = OURS[name]["build"]
    assert (ROOT / build["context"] / "Dockerfile").is_file()
    stage = stages()[build["target"]]

    directories = re.search(r"install --directory .*?((?: /\w+)+)\n", stage)
    assert directories
    named = {mount.split(":")[1] for mount in OURS[name].get("volumes", [])}
    named |= {word for word in OURS[name].get("command", []) if re.fullmatch(r"/\w+", word)}
    assert named <= set(directories[1].split())


def test_every_volume_is_declared_and_used() -> None:
    used = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}

    assert used == set(COMPOSE["volumes"])


def test_every_dependency_is_a_service_that_can_get_into_that_state() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert "restart" not in SERVICES[name]


def test_every_port_is_listened_on_and_open_to_this_machine_alone() -> None:
    listened = {
        "broker": {str(endpoint_of("broker").port), str(Settings.model_fields["http_port"].default)},
        "standby": {str(endpoint_of("standby").port), SERVICES["standby"]["environment"]["STOMPBROKER_HTTP_PORT"]},
        "spark-master": {option(SERVICES["spark-master"]["command"], "--webui-port")},
    }

    published = {
        name: {port.split(":")[2] for port in service["ports"]}
        for name, service in SERVICES.items()
        if "ports" in service
    }

    assert published == listened
    for service in SERVICES.values():
        for port in service.get("ports", []):
            address, outside, inside = port.split(":")
            assert address == "127.0.0.1"
            assert outside == inside
    # The image's own command has no TLS.
    exposed = listened["broker"] | {str(Settings.model_fields["port"].default)}
    assert set(re.search(r"(?m)^EXPOSE (.*)$", DOCKERFILE)[1].split()) == exposed  # type: ignore[index]


def test_the_broker_the_report_and_the_workers_share_what_they_must() -> None:
    def places(name: str) -> dict[str, str]:
        return dict(mount.split(":")[:2] for mount in SERVICES[name]["volumes"])

    # The control socket and the lake for the report; the lake and the results for those who compute it.
    assert places("broker").items() <= places("report").items()
    assert {"lake": "/lake", "reports": "/reports"}.items() <= places("spark-worker").items()
    assert SERVICES["report"]["environment"]["STOMPBROKER_LAKE"] == places("report")["lake"]
    assert SERVICES["broker"]["environment"]["STOMPBROKER_LAKE"] == places("broker")["lake"]
    assert option(SERVICES["report"]["command"], "--out") == places("report")["reports"]
    assert option(SERVICES["report"]["command"], "--data") == places("report")["broker"]


def test_the_master_is_where_workers_and_report_look_for_it() -> None:
    command = SERVICES["spark-master"]["command"]
    master = f"spark://{option(command, '--host')}:{option(command, '--port')}"

    assert option(command, "--host") in SERVICES
    assert SERVICES["spark-worker"]["command"][-1] == master
    assert option(SERVICES["report"]["command"], "--master") == master
    assert SERVICES["spark-worker"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", ["spark-master", "spark-worker"])
def test_spark_has_these_programs_and_they_these_options(name: str) -> None:
    python, dash, module = OURS[name]["entrypoint"]
    spark_class, *words = OURS[name]["command"]
    assert (python, dash) == ("python", "-m")
    assert importlib.util.find_spec(module) is not None
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    (jar,) = (Path(package.origin).parent / "jars").glob("spark-core_*.jar")

    with zipfile.ZipFile(jar) as classes:
        assert f"{spark_class.replace('.', '/')}.class" in classes.namelist()
        reader = classes.read(SPARK_ARGUMENTS[spark_class])
    for word in words:
        if word.startswith("--"):
            assert word.encode() in reader, word


def test_the_standby_has_a_directory_of_its_own_and_all_else_in_common() -> None:
    (_, *options), (_, *of_standby) = (SERVICES[name]["command"] for name in ("broker", "standby"))
    mounts = {name: dict(mount.split(":")[:2][::-1] for mount in SERVICES[name]["volumes"]) for name in OURS_ON_STORE}

    # Either may be the one that waits.
    assert "--standby" in options
    assert "--standby" in of_standby
    assert option(options, "--data") != option(of_standby, "--data")
    assert option(of_standby, "--data") not in mounts["broker"]
    # Store, lake, certificate and token are named in the environment; users are beside the broker's data otherwise.
    first, second = (SERVICES[name]["environment"] for name in OURS_ON_STORE)
    assert {key for key in second if second[key] != first.get(key)} == {
        *("STOMPBROKER_LISTEN", "STOMPBROKER_HTTP_PORT", "STOMPBROKER_USERS_FILE")
    }
    assert second["STOMPBROKER_USERS_FILE"] == f"{option(options, '--data')}/users.toml"
    assert mounts["standby"].items() >= mounts["broker"].items()
    assert SERVICES["standby"]["profiles"] == ["standby"]


def test_the_addresses_that_clients_are_told_are_listened_on() -> None:
    head = (ROOT / "docker-compose.yml").read_text().partition("services:")[0]

    told = {int(port) for port in re.findall(r"localhost:(\d+)", head)}
    assert told == {endpoint_of(name).port for name in OURS_ON_STORE}


def test_health_checks_look_at_ports_that_are_there() -> None:
    for name in OURS_ON_STORE:
        (address,) = re.findall(r"http://localhost:(\d+)/health/live", SERVICES[name]["healthcheck"]["test"][-1])
        assert address in {port.split(":")[2] for port in SERVICES[name]["ports"]}
        compile(SERVICES[name]["healthcheck"]["test"][-1], name, "exec")
    for name in ("spark-master", "spark-worker"):
        (address,) = re.findall(r"http://localhost:(\d+)/json/", SERVICES[name]["healthcheck"]["test"][-1])
        assert address == option(SERVICES[name]["command"], "--webui-port")
        compile(SERVICES[name]["healthcheck"]["test"][-1], name, "exec")


def test_the_image_is_built_from_what_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert {"analytics", "constraints.txt", "migrations", "pyproject.toml", "stompbroker"} <= kept
    assert all((ROOT / name).exists() for name in kept)


def test_the_last_stage_is_the_broker() -> None:
    # `docker build .` makes the last one.
    assert list(stages())[-1] == "broker"


def test_extras_that_stages_install_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    installed = re.findall(r'\.whl\)\[([\w,]+)\]"', DOCKERFILE)
    assert installed
    assert {name for names in installed for name in names.split(",")} <= set(extras)


# The first start


def prepare(directory: Path, **given: str) -> None:
    """Run what `prepare` runs, with `directory` in place of /data."""
    programs = directory.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name, arguments in {"stompbroker": "-m stompbroker", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "FIRST_USER": "admin"}
    # Hashing takes the least that is allowed.
    environment |= {"STOMPBROKER_PASSWORD_MEMORY": "8 MiB", "STOMPBROKER_PASSWORD_PASSES": "1", "FIRST_PASSWORD": ""}
    script = prepare_script().replace("/data", str(directory))
    subprocess.run([*SERVICES["prepare"]["entrypoint"], script], env=environment | given, check=True)


def endpoint_of(name: str) -> Endpoint:
    (listen,) = SERVICES[name]["environment"]["STOMPBROKER_LISTEN"].split()
    return Endpoint.parse(listen)


async def is_admin(directory: Path, password: str) -> bool:
    authenticator = Authenticator(AccessSettings(users_path=directory / "users.toml"), Clock())
    try:
        grant = await authenticator.check(Credentials(login="admin", passcode=password, address="127.0.0.1"))
    except LoginRefused:
        return False
    return "operator" in grant.roles and grant.allows(Right.WRITE, parse_pattern(">"))


async def test_the_first_start_makes_an_operator_with_a_password_of_chance_and_later_ones_nothing(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()

    prepare(data)
    first = {path.name: path.read_bytes() for path in data.iterdir()}
    prepare(data, FIRST_PASSWORD="another one")

    assert {path.name: path.read_bytes() for path in data.iterdir()} == first
    assert {path.name for path in data.iterdir() if path.stat().st_mode & 0o077} == {"certificate.pem"}
    assert await is_admin(data, first["password.txt"].decode().strip())


async def test_the_password_can_be_given(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()

    prepare(data, FIRST_PASSWORD="correct horse")

    assert not (data / "password.txt").exists()
    assert await is_admin(data, "correct horse")


def test_the_broker_serves_with_what_was_prepared(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    prepare(data)
    environment = SERVICES["broker"]["environment"]
    files = {key: environment[f"STOMPBROKER_{key.upper()}"] for key in ("tls_certificate", "tls_key")}
    settings = Settings(
        data=data,
        listen=(environment["STOMPBROKER_LISTEN"],),
        **{key: path.replace("/data", str(data)) for key, path in files.items()},
    )

    tls = settings.tls_files()

    assert tls is not None
    Tls(tls)
    refuse_exposure(settings, has_login=True)
    with pytest.raises(OperatorError, match="there is no login"):
        refuse_exposure(settings, has_login=False)


def option(words: list[str], name: str) -> str:
    """The value of an option in a command line."""
    return next(value for word, value in pairwise(words) if word == name)
