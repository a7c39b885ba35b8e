"""`stompbroker serve`: run the broker."""

import gc
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stompbroker.cli.certificate import CERTIFICATE_FILE
from stompbroker.cli.options import ConfigOption, DatabaseOption
from stompbroker.cli.outcome import ExitCode, run
from stompbroker.cli.target import spoken
from stompbroker.cli.terminal import say

if TYPE_CHECKING:
    from stompbroker.broker import Broker
    from stompbroker.config import Settings
    from stompbroker.storage import Standing, WritingProcess
    from stompbroker.transport import Endpoint


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Port to listen on; 0 takes any free one.", show_default="61613")
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where to listen instead, or besides: stomp://HOST:PORT, stomp+tls://HOST:PORT, ws://HOST:PORT/PATH, "
            "wss://HOST:PORT/PATH or unix:///PATH; can be repeated.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data directory, one for each broker.", show_default="./data")
    ] = None,
    database: DatabaseOption = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Wait for a store on PostgreSQL while another broker has it, and take it over then."
        ),
    ] = False,
    http_host: Annotated[
        str | None,
        typer.Option(
            help="Address of the management endpoint; any other than this machine's own needs a token.",
            show_default="127.0.0.1",
        ),
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port of that endpoint; 0 takes any free one.", show_default="8613")
    ] = None,
    config: ConfigOption = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.", show_default="info")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT", help="human, json, or auto: human on a terminal, else json.", show_default="auto"
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; can be repeated. See: stompbroker config"),
    ] = None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    Settings come from a TOML file, from environment variables such as STOMPBROKER_PORT, and from these options.
    "stompbroker config" shows them all, and where each came from.

    Examples:

    $ stompbroker serve
    $ stompbroker serve --port 7000 --data /var/lib/stompbroker
    $ stompbroker serve --database memory
    $ stompbroker serve --listen stomp+tls://0.0.0.0:61612 --listen unix:///run/stompbroker.sock
    $ stompbroker serve --standby --database postgresql+psycopg://broker@db.example/broker
    $ stompbroker serve --set memory_limit="2 GiB" --set max_connections=50000
    """
    flags = {
        "host": host,
        "port": port,
        "listen": tuple(listen) if listen else None,
        "data": data,
        "database": database,
        "standby": standby or None,
        "http_host": http_host,
        "http_port": http_port,
        "log_level": log_level,
        "log_format": log_format,
    }
    _import_structlog()
    from stompbroker.config import load

    _serve(load(config, flags=flags, assignments=assignments or []), context.obj)


def _serve(settings: "Settings", forked: "WritingProcess | OSError") -> None:
    """`forked` is the process that writes to an embedded store, or why there is none."""
    import structlog

    from stompbroker import logs
    from stompbroker.cli.serving import serve as serve_until_stopped
    from stompbroker.config import EMBEDDED

    logs.configure(settings.log_level, settings.log_format)
    writing = None
    if not isinstance(forked, OSError):
        if settings.database == EMBEDDED:
            writing = forked
        else:
            forked.end()
    elif settings.database == EMBEDDED:
        problem = "there is no process to write to the store; a thread does it"
        structlog.get_logger(__name__).warning(problem, reason=str(forked))
    if settings.standby:
        gc.enable()  # it may wait for days

    def on_ready(started: "Broker") -> None:
        has_login = started.authenticator.is_required
        announce(started.endpoints, settings, started.management_url, has_login=has_login)

    def on_standby(standing: "Standing") -> None:
        announce_standby(settings, standing.description)

    serving = partial(serve_until_stopped, settings, on_ready=on_ready, on_standby=on_standby, writing=writing)
    run(serving, code=ExitCode.OPERATOR)


def _import_structlog() -> None:
    """Without Rich, which takes half of its time: tracebacks are plain (`logs.py`)."""
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]


def announce(
    endpoints: "Sequence[Endpoint]", settings: "Settings", management: str | None = None, *, has_login: bool = False
) -> None:
    """Say on stdout that the broker is ready, where, and how to try it. Scripts wait for the first line."""
    from stompbroker import __version__
    from stompbroker.config import EMBEDDED, without_password

    stored = "" if settings.database == EMBEDDED else f", database {without_password(settings.database)}"
    first, *others = endpoints
    lines = [f"stompbroker {__version__} is ready at {first} (data in {settings.data}{stored})"]
    lines += [f"and at {endpoint}" for endpoint in others]
    where = _options_of_clients(endpoints, settings, has_login=has_login)
    if where is not None:
        program = _as_called()
        lines += [
            "Try it, each in a terminal of its own:",
            f"  {program} subscribe{where} /topic/greetings",
            f'  {program} publish{where} /topic/greetings "Hello, world"',
        ]
    if management is not None:
        lines.append(f"Watch it at {management}")
    # Nobody may read our stdout any more; that is no reason to stop serving.
    with suppress(BrokenPipeError):
        say(*lines)


def announce_standby(settings: "Settings", owner: str) -> None:
    """Say on stdout that the broker waits, and for whom. The line that it is ready comes when it has taken over."""
    from stompbroker import __version__
    from stompbroker.config import without_password

    database = without_password(settings.database)
    with suppress(BrokenPipeError):
        say(f"stompbroker {__version__} is on stand-by for {database}, which this broker has: {owner}")


def _options_of_clients(endpoints: "Sequence[Endpoint]", settings: "Settings", *, has_login: bool) -> str | None:
    """With which `publish` and `subscribe` reach the broker; None if they cannot."""
    from stompbroker.transport import Scheme

    endpoint = spoken(endpoints)
    if endpoint is None:
        return None
    if endpoint.scheme is Scheme.STOMP and not has_login:
        given = {"host": endpoint.host, "port": endpoint.port}
        fields = type(settings).model_fields
        return "".join(f" --{key} {value}" for key, value in given.items() if value != fields[key].default)
    url = f" --url {endpoint.scheme}://{'NAME@' if has_login else ''}{endpoint.address}"
    certificate = settings.data / CERTIFICATE_FILE
    is_own = endpoint.scheme.is_encrypted and Path(settings.tls_certificate).expanduser() == certificate
    return f"{url} --ca {shlex.quote(str(certificate))}" if is_own else url


def _as_called() -> str:
    """How to start this program again: by its name if the shell finds it, otherwise as it was called."""
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("stompbroker", "__main__.py"):
        return f"{sys.executable} -m stompbroker"
    if called.name != "stompbroker" or not called.exists():
        return "stompbroker"
    found = shutil.which(called.name)
    return called.name if found is not None and Path(found).samefile(called) else str(called)
