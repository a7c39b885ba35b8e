"""`stompbroker spotty`: a broker that goes away and comes back, for testing clients.

Law: reads what `serve` reads, by the command of that name, and tells the broker to listen on free ports of this machine
only; the relay listens where the operator said. So what `serve` refuses to expose is refused here.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.outcome import ExitCode, run, stopped_by_signal
from stompbroker.cli.serve import serve
from stompbroker.cli.terminal import say
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from stompbroker.config import Settings
    from stompbroker.spotty import Mode, Span, Spotty
    from stompbroker.transport import Endpoint

#: Seeds of our choosing are short enough to be typed.
SEEDS = 1_000_000
#: Settings that say where the broker listens, which is our part.
_PLACES = ("host", "port", "listen")
_SPAN = "SECONDS[..SECONDS]"


def spotty(
    context: typer.Context,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed has the same outages.")] = None,
    up: Annotated[str | None, typer.Option(metavar=_SPAN, help="Time between outages.", show_default="5..20")] = None,
    down: Annotated[str | None, typer.Option(metavar=_SPAN, help="Length of an outage.", show_default="1..5")] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE,…", help="kill, stop, refuse, or several.", show_default="all")
    ] = None,
    times: Annotated[int | None, typer.Option(min=1, help="End after so many outages.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0, help="End after this time.")
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what happens as JSON, a line each.")] = None,
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="Have the outages of such a log again.")] = None,
) -> None:
    """Run a broker that goes away and comes back, to test clients with.

    Outages of three kinds: kill (SIGKILL, and a new start on the same data), stop (connections stay open and silent),
    and refuse (connections are reset and refused while the broker lives). All other options are those of "serve", with
    or without "--" before them.

    Examples:

    $ stompbroker spotty
    $ stompbroker spotty --seed 7 --up 5..20 --down 1..5 --mode kill,refuse --times 10 --port 7000
    $ stompbroker spotty --log outages.jsonl -- --data /tmp/spotty --set group_prefetch=1
    $ stompbroker spotty --replay outages.jsonl
    """
    from stompbroker.spotty import run_spotty

    if replay is not None and (seed, up, down, mode) != (None, None, None, None):
        raise typer.BadParameter("the log has the outages, so it takes no plan", param_hint="--replay")
    planned = _planned(seed, up, down, mode, replay, times)
    given = _options_of_serve(context.args)
    settings = _settings(given)
    spotty = replace(planned, endpoints=_endpoints(settings), arguments=_arguments(given, settings), limit_s=seconds)
    with ExitStack() as opened:
        log_file = None if log is None else opened.enter_context(_opened(log))

        async def until_stopped() -> None:
            import trio

            _refuse_exposure(settings)
            stop = trio.Event()
            async with stopped_by_signal(stop.set):
                announce = partial(_announce, settings, spotty)
                await run_spotty(spotty, log_file, _say, announce, stop)

        run(until_stopped, code=ExitCode.OPERATOR)


def _say(line: str) -> None:
    # Nobody may read our stdout any more; that is no reason to stop.
    with suppress(BrokenPipeError):
        say(line)


def _announce(settings: "Settings", spotty: "Spotty", endpoints: "Sequence[Endpoint]") -> None:
    origin = ", ".join(f"{name} {value}" for name, value in spotty.origin.items())
    _say(f"stompbroker spotty is ready at {', '.join(map(str, endpoints))} (data in {settings.data}; {origin})")


# The plan ------------------------------------------------------------------------------------------------------------


def _planned(
    seed: int | None, up: str | None, down: str | None, mode: str | None, replay: Path | None, times: int | None
) -> "Spotty":
    from itertools import islice

    from stompbroker.spotty import Spotty, outages_of, read_log

    nothing = Spotty(endpoints=(), arguments=(), outages=(), limit_s=None, origin={})
    if replay is not None:
        return replace(nothing, outages=islice(read_log(replay), times), origin={"replay": str(replay)})
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    up, down = up or "5..20", down or "1..5"
    modes = _read_modes(mode)
    outages = outages_of(seed, _read_span(up, "--up"), _read_span(down, "--down"), modes)
    origin = {"seed": seed, "up": up, "down": down, "mode": ",".join(modes)}
    return replace(nothing, outages=islice(outages, times), origin=origin)


def _read_span(text: str, parameter: str) -> "Span":
    from stompbroker.spotty import Span

    least, dots, most = text.partition("..")
    try:
        span = Span(float(least), float(most if dots else least))
    except ValueError:
        span = Span(-1, -1)
    if not 0 <= span.least_s <= span.most_s < float("inf"):
        raise typer.BadParameter(f'"{text}" is not seconds, such as 5 or 0.5..20', param_hint=parameter)
    return span


def _read_modes(text: str | None) -> "tuple[Mode, ...]":
    from stompbroker.spotty import MODES, Mode

    if text is None:
        return MODES
    try:
        return tuple(Mode(name.strip()) for name in text.split(","))
    except ValueError:
        allowed = ", ".join(MODES)
        raise typer.BadParameter(f'"{text}" is not of these, with commas: {allowed}', param_hint="--mode") from None


# The broker ----------------------------------------------------------------------------------------------------------


def _options_of_serve(arguments: Sequence[str]) -> dict[str, Any]:
    """The options of `serve` that were given, by the names of its parameters. A wrong one ends the program as there."""
    application = typer.Typer(add_completion=False)
    application.command()(serve)
    context = typer.main.get_command(application).make_context("stompbroker spotty", list(arguments))
    given = context.params.items()
    return {name: value for name, value in given if value is not False and value not in (None, (), [])}


def _settings(given: Mapping[str, Any]) -> "Settings":
    from stompbroker.config import load

    flags = {name: value for name, value in given.items() if name not in ("config", "assignments")}
    if "listen" in flags:
        flags["listen"] = tuple(flags["listen"])
    config = given.get("config")
    return load(None if config is None else Path(config), flags=flags, assignments=given.get("assignments") or ())


def _refuse_exposure(settings: "Settings") -> None:
    """What the broker would do; it cannot know, since it only sees our addresses. Within trio. Raises OperatorError."""
    from stompbroker.access import Authenticator
    from stompbroker.clock import Clock
    from stompbroker.config.exposure import refuse_exposure

    refuse_exposure(settings, has_login=Authenticator(settings.for_access(), Clock()).is_required)


def _endpoints(settings: "Settings") -> "list[Endpoint]":
    """Raises OperatorError for those that cannot be relayed."""
    from stompbroker.transport import Scheme

    for endpoint in settings.endpoints:
        if endpoint.scheme is Scheme.UNIX or endpoint.restrictions.proxies:
            raise OperatorError(f"spotty relays connections over TCP, without the PROXY protocol: not {endpoint}.")
    return settings.endpoints


def _arguments(given: Mapping[str, Any], settings: "Settings") -> list[str]:
    """For `serve`: what was given, but on free ports of this machine."""
    arguments: list[str] = []
    for name, value in given.items():
        if name == "assignments":
            kept = [one for one in value if one.partition("=")[0].strip() not in _PLACES]
            arguments += [part for one in kept for part in ("--set", one)]
        elif name not in _PLACES:
            arguments += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    if len(settings.endpoints) > len(settings.listen):  # the short form, by host and port
        arguments += ["--host", "127.0.0.1", "--port", "0"]
    for text, endpoint in zip(settings.listen, settings.endpoints[-len(settings.listen) :], strict=False):
        local = replace(endpoint, host="127.0.0.1", port=0)
        arguments += ["--listen", f"{local}?{text.partition('?')[2]}".rstrip("?")]
    return arguments


def _opened(log: Path) -> IO[str]:
    try:
        return log.open("w", encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"The log {log} cannot be written: {error.strerror}.") from error
