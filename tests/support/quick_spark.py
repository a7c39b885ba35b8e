"""Java and Spark for a few thousand records: neither compiles what would not pay off within seconds."""

from __future__ import annotations

from typing import Final

JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    # Expressions are interpreted: compiling them took a fifth of a run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

#: The same for a command that starts its own Spark, which reads settings from Java's properties.
ENVIRONMENT: Final = {
    "JAVA_TOOL_OPTIONS": " ".join([JAVA_OPTIONS, *(f"-D{name}={value}" for name, value in SETTINGS.items())])
}
