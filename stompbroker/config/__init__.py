"""Every setting of the broker, and where its value came from.

Law: a setting is one flat key with a unit, a default, an allowed range and a reason, all written once, in
`settings.py`; nobody else reads the environment or the settings file. A mistake is named together with where it was
made and what would have been right, all mistakes of one start at once.

Sources, each overriding those before it: the defaults; a TOML file (the one given, or `stompbroker.toml` in the
working directory if there is one); environment variables `STOMPBROKER_<KEY>`; flags of the command line.

    port = 61613
    memory_limit = "1 GiB"

    [[topics]]                  # the first table whose pattern matches a topic, in the order of the file, counts
    pattern = "prices.*"        # alone: tables do not add up, so the narrow patterns come before the wide ones
    slow_subscriber = "drop-oldest"
    window_bytes = "64 MiB"

A `Settings(...)` made in code takes what it is given and defaults, never the environment: only `load` looks around.
"""

from stompbroker.config.checked_settings import Settings
from stompbroker.config.loading import EffectiveSetting, SettingsError, effective, load
from stompbroker.config.places import EMBEDDED, EMBEDDED_FILE, MEMORY, without_password
from stompbroker.config.quantities import MIN_TOKEN, bytes_as_text
from stompbroker.config.settings import DEFAULT_FILE, ENVIRONMENT_PREFIX, LogFormat, LogLevel, Source, SourceKind
from stompbroker.config.topic_settings import TopicSettings

__all__ = [
    "DEFAULT_FILE",
    "EMBEDDED",
    "EMBEDDED_FILE",
    "ENVIRONMENT_PREFIX",
    "MEMORY",
    "MIN_TOKEN",
    "EffectiveSetting",
    "LogFormat",
    "LogLevel",
    "Settings",
    "SettingsError",
    "Source",
    "SourceKind",
    "TopicSettings",
    "bytes_as_text",
    "effective",
    "load",
    "without_password",
]
