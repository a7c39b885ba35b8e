"""Reads the sources, says what is wrong with them, and shows what came of them.

Law: every value is kept together with where it came from until it has been validated. All mistakes are gathered
and named at once; nothing is guessed, nothing is skipped. No sentence has a password in it, even when a database was
written where something else belongs.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from stompbroker.config.checked_settings import Contradicting, Settings
from stompbroker.config.places import without_password
from stompbroker.config.quantities import allowed, concealed, show
from stompbroker.config.settings import DEFAULT_FILE, ENVIRONMENT_PREFIX, Source, SourceKind
from stompbroker.config.topic_settings import TopicSettings
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

__all__ = ["EffectiveSetting", "SettingsError", "effective", "load"]

#: How alike two keys must be for "did you mean" (difflib's ratio, 1 is equal). Below this, suggestions are noise.
CLOSE_MATCH_RATIO = 0.7


class SettingsError(OperatorError):
    """The settings cannot be used; the text has one line for each thing to mend, naming where it was written."""


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
class _Layers:
    """Gathers values from one source after the other.

    Invariants:
        values and sources have the same keys, all of them known settings
        what could not be taken is a sentence in problems
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, Source] = {}
        self.problems: list[str] = []

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
            content = TomlConfigSettingsSource(Settings, toml_file=path)()
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
        for key, value in EnvSettingsSource(Settings)().items():
            self.put(key, value, Source(SourceKind.ENVIRONMENT, ENVIRONMENT_PREFIX + key.upper()))
        for name in sorted(os.environ):
            if name.startswith(ENVIRONMENT_PREFIX) and name not in variables:
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
    """One finding of pydantic as lines for a person: what is wrong, where it was written, what is allowed."""
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
        field = Settings.model_fields[key]
        yield f"{key} = {show(concealed(details['input'], field))} ({source}): allowed is {allowed(field)}"
        return
    place, key = f"topics table {int(location[1]) + 1}: ", str(location[2])
    if details["type"] == "extra_forbidden":
        yield f'{place}unknown key "{key}" in {source}{_suggestion(key, TopicSettings.model_fields)}'
    elif details["type"] == "missing":
        yield f"{place}{key} is missing in {source}; it says which topics the table is for"
    else:
        # What a table overrides has the same name, kind and range as the general setting.
        field = Settings.model_fields.get(key) or TopicSettings.model_fields[key]
        yield f"{place}{key} = {show(details['input'])} ({source}): allowed is {allowed(field)}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """One line of `stompbroker config`."""

    key: str
    value: object  # as JSON has it: a number, a text, a list of objects; passwords are left out
    shown: str
    source: Source
    allowed: str
    reason: str


def effective(settings: Settings) -> list[EffectiveSetting]:
    """Every setting, in the order they are defined in, with its value and where that came from."""
    plain = settings.model_dump(mode="json", exclude_none=True)
    return [
        EffectiveSetting(
            key=key,
            value=concealed(plain[key], field),
            shown=_shown(settings, key, field),
            source=settings._sources.get(key, Source()),
            allowed=allowed(field),
            reason=field.description or "",
        )
        for key, field in Settings.model_fields.items()
    ]


def _shown(settings: Settings, key: str, field: FieldInfo) -> str:
    if key == "topics":
        return ", ".join(table.pattern for table in settings.topics) or "none"
    return show(getattr(settings, key), field)
