"""`stompbroker config`: the settings that `serve` would use if it were started here and now."""

from stompbroker.cli.options import ConfigOption, JsonOption
from stompbroker.cli.terminal import print_uncut, say, say_json, table_of


def config(config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show every setting: its value, where the value came from, and what it is for; then where clients connect.

    Examples:

    $ stompbroker config
    $ stompbroker config --config production.toml
    $ STOMPBROKER_PORT=7000 stompbroker config --json
    """
    from stompbroker.config import SourceKind, effective, load

    loaded = load(config_file)
    settings = effective(loaded)
    endpoints = [str(endpoint) for endpoint in loaded.endpoints]
    if as_json:
        content: dict[str, dict[str, object]] = {
            one.key: {"value": one.value, "source": str(one.source), "allowed": one.allowed, "description": one.reason}
            for one in settings
        }
        content["listen"]["endpoints"] = endpoints
        say_json(content)
        return
    table = table_of(
        settings,
        {
            "key": lambda one: one.key,
            "value": lambda one: one.shown,
            "source": lambda one: str(one.source),
            "what it is": lambda one: one.reason,
        },
        folds=("source", "what it is"),
        style=lambda one: "" if one.source.kind is SourceKind.DEFAULT else "bold",
    )
    print_uncut(table)
    say("", f"Clients connect at {', '.join(endpoints)}")
