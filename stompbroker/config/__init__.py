"""Every setting of the broker, and where its value came from.

Law: a setting is one flat key with a unit, a default, a range and a reason, written once, in `settings.py`. Nobody
else reads settings from the environment or the file.

`load` reads the defaults, a TOML file, environment variables and flags, each overriding those before it (see
docs/operating.md). A `Settings(...)` made in code takes its arguments and defaults only.
"""

from stompbroker.config.bridge_settings import BridgeSettings
from stompbroker.config.checked_settings import Settings, TopicSettings
from stompbroker.config.loading import ENVIRONMENT_PREFIX, SettingsError, effective, load
from stompbroker.config.places import EMBEDDED, EMBEDDED_FILE, IN_DATA_DIRECTORY, MEMORY, without_password
from stompbroker.config.settings import MIN_TOKEN, LogFormat, LogLevel, SourceKind, bytes_as_text

__all__ = [
    "EMBEDDED",
    "EMBEDDED_FILE",
    "ENVIRONMENT_PREFIX",
    "IN_DATA_DIRECTORY",
    "MEMORY",
    "MIN_TOKEN",
    "BridgeSettings",
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
