"""How this installation was built; bug reports need it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

#: Looked for and not imported: `stompbroker --version` is quick.
_SAMPLE: Final = find_spec("stompbroker.message")
IS_COMPILED: Final = _SAMPLE is not None and not str(_SAMPLE.origin).endswith(".py")
BUILD: Final = "compiled" if IS_COMPILED else "plain Python"
