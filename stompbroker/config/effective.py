"""The settings as a person wants to see them: value, origin, reason.

Law: a view; it reads settings and changes nothing. A password is in none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from stompbroker.config.quantities import allowed, concealed, show
from stompbroker.config.settings import Settings
from stompbroker.config.sources import Source

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["EffectiveSetting", "effective"]


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
