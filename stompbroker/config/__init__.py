"""Every setting of the broker, and where its value came from.

Law: a setting is one flat key with a unit, a default, a range and a reason, written once, in `settings.py`. Nobody
else reads the environment or the settings file.

Sources, each overriding those before it: the defaults; a TOML file (the one given, or `stompbroker.toml` in the
working directory if there is one); environment variables `STOMPBROKER_<KEY>`; flags of the command line.

    port = 61613
    memory_limit = "1 GiB"

    [[topics]]                  # for each topic only the first table that matches counts,
    pattern = "prices.*"        # so narrow patterns come before wide ones
    slow_subscriber = "drop-oldest"
    window_bytes = "64 MiB"

A `Settings(...)` made in code takes its arguments and defaults; only `load` reads the other sources.
"""

from stompbroker.config.checked_settings import Settings, TopicSettings
from stompbroker.config.loading import SettingsError, effective, load
from stompbroker.config.places import EMBEDDED, EMBEDDED_FILE, MEMORY, without_password
from stompbroker.config.settings import ENVIRONMENT_PREFIX, MIN_TOKEN, LogFormat, LogLevel, SourceKind, bytes_as_text

__all__ = [
    "EMBEDDED",
    "EMBEDDED_FILE",
    "ENVIRONMENT_PREFIX",
    "MEMORY",
    "MIN_TOKEN",
    "LogFormat",
    "LogLevel",
    "Settings",
    "SettingsError",
    "SourceKind",
    "TopicSettings",
    "bytes_as_text",
    "effective",
    "load",
    "without_password",
]
