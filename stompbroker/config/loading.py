"""Reads the sources of settings, explains what is wrong with them, and shows the result.

Law: a value keeps its source until it is validated, and all mistakes are named at once. No message has a password in
it, even if somebody wrote a database URL in the wrong place.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from pydantic import BaseModel, ValidationError

from stompbroker.config.bridge_settings import BridgeSettings
from stompbroker.config.checked_settings import Contradicting, QueueSettings, Settings, TopicSettings
from stompbroker.config.places import without_password
from stompbroker.config.settings import Kind, Source, SourceKind, bytes_as_text
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "STOMPBROKER_"
#: Read by commands that log in at a broker, and no settings.
CLIENT_VARIABLES = frozenset({"STOMPBROKER_PASSWORD", "STOMPBROKER_TOKEN"})
#: Read from the working directory when no file is given.
DEFAULT_FILE = Path("stompbroker.toml")
#: How alike two keys must be for "did you mean" (difflib's ratio, 1 is equal).
CLOSE_MATCH_RATIO = 0.7


_TABLES: Mapping[str, type[BaseModel]] = {
    "topics": TopicSettings,
    "queues": QueueSettings,
    "bridges": BridgeSettings,
}


class SettingsError(OperatorError):
    """The settings cannot be used; the text has one line for each mistake and where it was written."""


def load(
    config_file: Path | None = None, *, flags: Mapping[str, object] | None = None, assignments: Sequence[str] = ()
) -> Settings:
    """Settings from all sources. `flags` are by key, None if not given; `assignments` are `KEY=VALUE`.

    Raises SettingsError, which names every mistake found.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    layers = _Layers()
    layers.add_file(config_file)
    layers.add_environment()
    layers.add_assignments(assignments, given)
    for key, value in given.items():
        layers.put(key, value, Source(SourceKind.FLAG, "--" + key.replace("_", "-")))
    try:
        settings = Settings(**layers.values)
    except ValidationError as error:
        layers.problems += [line for details in error.errors() for line in _explain(details, layers.sources)]
    if layers.problems:
        raise SettingsError("\n".join(["These settings cannot be used:", *(f"  - {line}" for line in layers.problems)]))
    settings._sources.update(layers.sources)
    return settings


@final
@dataclass(slots=True)
class _Layers:
    """Gathers values from one source after the other.

    Invariant: values and sources have the same keys, all of them known settings.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, key: str, value: object, source: Source) -> None:
        self.values[key] = value
        self.sources[key] = source

    def add_file(self, given: Path | None) -> None:
        path = given or DEFAULT_FILE
        if given is None and not path.exists():
            return
        if not path.is_file():
            raise SettingsError(
                f"There is no settings file {path}. Without --config, {DEFAULT_FILE} is read if it exists."
            )
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings file {path} is not valid TOML: {error}.") from error
        source = Source(SourceKind.FILE, str(path))
        for key, value in content.items():
            if key in Settings.model_fields:
                self.put(key, value, source)
            else:
                self.problems.append(f'unknown key "{key}" in {source}{_suggestion(key, Settings.model_fields)}')

    def add_environment(self) -> None:
        variables = {ENVIRONMENT_PREFIX + key.upper(): key for key in Settings.model_fields}
        for name, value in sorted(os.environ.items()):
            if key := variables.get(name.upper()):
                self.put(key, value, Source(SourceKind.ENVIRONMENT, name.upper()))
            elif name.startswith(ENVIRONMENT_PREFIX) and name not in CLIENT_VARIABLES:
                self.problems.append(f"unknown variable {name} in the environment{_suggestion(name, variables)}")

    def add_assignments(self, assignments: Sequence[str], given_flags: Mapping[str, object]) -> None:
        for assignment in assignments:
            key, equals, value = (part.strip() for part in assignment.partition("="))
            key = key.replace("-", "_")
            if not equals:
                shown = without_password(assignment)
                self.problems.append(f'flag --set "{shown}" has no "="; write --set KEY=VALUE')
            elif key not in Settings.model_fields:
                suggestion = _suggestion(key, Settings.model_fields)
                self.problems.append(f'unknown key "{without_password(key)}" in flag --set{suggestion}')
            elif key in given_flags:
                self.problems.append(f"{key} is given both by --set and by a flag of its own; leave one out")
            else:
                self.put(key, value, Source(SourceKind.FLAG, f"--set {key}"))


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=CLOSE_MATCH_RATIO)
    return f'; did you mean "{close[0]}"?' if close else '; "stompbroker config" lists all there are'


def _explain(details: ErrorDetails, sources: Mapping[str, Source]) -> Iterator[str]:
    """One error of pydantic as lines for a person: what is wrong, where it was written, what is allowed."""
    location = details["loc"]
    if not location:
        cause = details["ctx"]["error"]
        assert isinstance(cause, Contradicting), "only contradictions concern the settings as a whole"
        for one in cause.found:
            origins = [f"{key} from {sources[key]}" for key in one.keys if key in sources]
            yield f"{one.sentence} ({', '.join(origins)})" if origins else one.sentence
        return
    key = str(location[0])
    source = sources[key]
    if len(location) <= 2:
        info = Settings.model_fields[key]
        kind = _kind(info)
        if kind and kind.says_why and details["type"] == "value_error":
            yield f"{key} ({source}): {details['ctx']['error']}"
        else:
            yield f"{key} = {show(concealed(details['input'], info))} ({source}): allowed is {allowed(info)}"
        return
    tables, (place, key) = key, (f"{key} table {int(location[1]) + 1}: ", str(location[2]))
    known = _TABLES[tables].model_fields
    if details["type"] == "extra_forbidden":
        yield f'{place}unknown key "{key}" in {source}{_suggestion(key, known)}'
    elif details["type"] == "missing":
        says = f"which {tables} the table is for" if tables != "bridges" else "what the bridge is called, or where to"
        yield f"{place}{key} is missing in {source}; it says {says}"
    else:
        # A setting of a topic or queue has the name, kind and range of the general one.
        info = known[key] if tables == "bridges" else Settings.model_fields.get(key) or known[key]
        yield f"{place}{key} = {show(details['input'], info)} ({source}): allowed is {allowed(info)}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    key: str
    value: object  # for JSON, without passwords
    shown: str
    source: Source
    allowed: str
    reason: str


def effective(settings: Settings) -> list[EffectiveSetting]:
    plain = settings.model_dump(mode="json", exclude_none=True)
    tables = {
        "topics": ", ".join(table.pattern for table in settings.topics) or "none",
        "queues": ", ".join(table.name for table in settings.queues) or "none",
        "bridges": ", ".join(table.name for table in settings.bridges) or "none",
    }
    return [
        EffectiveSetting(
            key=key,
            value=concealed(plain[key], info),
            shown=tables.get(key) or show(getattr(settings, key), info),
            source=settings._sources.get(key, Source()),
            allowed=allowed(info),
            reason=info.description or "",
        )
        for key, info in Settings.model_fields.items()
    ]


# Values as text ------------------------------------------------------------------------------------------------------


def show(value: object, field: FieldInfo | None = None) -> str:
    """A value as in a settings file, without passwords."""
    value = concealed(value, field)
    if isinstance(value, int) and field is not None and (kind := _kind(field)) and kind.is_bytes:
        return bytes_as_text(value)
    if isinstance(value, Enum):
        return show(value.value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def concealed(value: object, field: FieldInfo | None) -> object:
    """The value, or what may be shown of a secret."""
    kind = _kind(field) if field is not None else None
    return kind.conceal(value) if kind and kind.conceal else value


def allowed(field: FieldInfo) -> str:
    """What a setting may be, in words, from the constraints that are enforced."""
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        return "one of " + ", ".join(str(member.value) for member in field.annotation)
    kind = _kind(field)
    noun = kind.noun if kind else ""
    low = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    return noun if low is None or high is None else f"{noun} from {show(low, field)} to {show(high, field)}"


def _kind(field: FieldInfo) -> Kind | None:
    return next((item for item in field.metadata if isinstance(item, Kind)), None)
