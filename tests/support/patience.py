"""How long tests wait for what has to come.

Law: a bound on failing, and no claim on speed. Nothing ever waits for these times to pass: what is waited for comes in
moments on a machine that has nothing else to do, and a busy one is given the time it takes.
"""

from __future__ import annotations

from typing import Final

#: For any one wait, and for any one command.
HARD_TIMEOUT_S: Final = 120.0
#: For one that starts Spark.
SPARK_TIMEOUT_S: Final = 300.0
