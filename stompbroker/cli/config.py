"""`stompbroker config`: the settings in force.

Law: shows what `serve` would use if it were started here and now, and where each value came from.
"""

from stompbroker.cli.options import ConfigOption, JsonOption
from stompbroker.cli.terminal import open_console, say_json, shown

__all__ = ["config"]


def config(config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show every setting, its value, where that came from, and what it is for.

    Examples:

    $ stompbroker config
    $ stompbroker config --config production.toml
    $ STOMPBROKER_PORT=7000 stompbroker config --json
    """
    from stompbroker.config import SourceKind, effective, load

    settings = effective(load(config_file))
    if as_json:
        content = {
            one.key: {"value": one.value, "source": str(one.source), "allowed": one.allowed, "description": one.reason}
            for one in settings
        }
        say_json(content)
        return

    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("key", "value", "source", "what it is"):
        # Keys and values are there to be copied: never cut, whatever the width.
        table.add_column(column, overflow="fold", no_wrap=column in ("key", "value"))
    for one in settings:
        style = "" if one.source.kind is SourceKind.DEFAULT else "bold"
        table.add_row(*(shown(text, style) for text in (one.key, one.shown, str(one.source), one.reason)))
    open_console().print(table)
