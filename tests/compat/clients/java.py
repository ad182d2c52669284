"""Kafka's own Java clients: the programs of tests/compat/java, built once by Maven and run in JVMs of their own."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1] / "java"
SKIPPED = "THE JAVA CLIENT WAS NOT TESTED: "
DEADLINE_S = 120.0
_BUILD_DEADLINE_S = 240.0
# Small and quick to start: a test machine runs several of these at once.
_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# What Maven says where a registry cannot be reached, or has no such version.
_UNFETCHED = ("Could not transfer artifact", "Could not find artifact", "in offline mode", "could not be resolved")


class Java:
    """The built programs."""

    def __init__(self, target: Path) -> None:
        self._classpath = f"{target / 'classes'}:{(target / 'classpath').read_text(encoding='utf-8').strip()}"

    def command(self, scenario: str, server: str, options: Mapping[str, object]) -> list[str]:
        words = [f"{name}={value}" for name, value in options.items()]
        return ["java", *_OPTIONS, "-cp", self._classpath, "headrace.Main", scenario, server, *words]

    def run(self, scenario: str, server: str, **options: object) -> dict[str, Any]:
        """Run a scenario to its end. Returns what it found."""
        named = {name.replace("__", "."): value for name, value in options.items()}
        command = self.command(scenario, server, named)
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, f"{scenario} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def build(cache: Path) -> Java:
    """Build the programs unless these very sources were built before. Skips where that is not possible here."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            pytest.skip(f"{SKIPPED}there is no {tool}; install Maven and a JDK of 17 or newer")
    target = cache / _fingerprint()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "built").exists():
            _build(target)
            (target / "built").touch()
    return Java(target)


def _fingerprint() -> str:
    found = hashlib.sha256()
    for path in [PROJECT / "pom.xml", *sorted(PROJECT.glob("src/**/*.java"))]:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _build(target: Path) -> None:
    command = ["mvn", "--batch-mode", "--quiet", f"-Dtarget={target}", "process-classes"]
    # Without the network where everything is here already.
    for words in ([*command, "--offline"], command):
        done = subprocess.run(
            words, cwd=PROJECT, capture_output=True, text=True, timeout=_BUILD_DEADLINE_S, check=False
        )
        if done.returncode == 0:
            return
        if not any(sign in done.stdout for sign in _UNFETCHED):
            pytest.fail(f"tests/compat/java cannot be built:\n{done.stdout[-4000:]}")
    pytest.skip(f"{SKIPPED}Maven could not fetch its artifacts: {done.stdout.strip().splitlines()[0]}")
