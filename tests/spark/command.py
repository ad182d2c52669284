"""`headrace …` as a person gives it, in a process of its own, with a node and a state directory of the test's."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.node import HEADRACE, NodeProcess, environment

# Twice what a machine with two cores takes while it is busy with other tests.
DEADLINE_S = 200.0


class Command:
    def __init__(self, node: NodeProcess, place: Path) -> None:
        self.place = place
        self.environment = environment({"server": node.server, "http": node.http, "state": place / "state"})

    def run(self, *arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        ended = subprocess.run(
            [*HEADRACE, *map(str, arguments)],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == code, (
            f"exit code {ended.returncode}:\n{ended.stdout}{ended.stderr}{self._spark_log()}"
        )
        return ended

    def summary(self, *arguments: object) -> dict[str, Any]:
        """The last event of a pipeline that was run with --json."""
        event: dict[str, Any] = json.loads(self.run("pipeline", "run", *arguments, "--json").stdout.splitlines()[-1])
        assert event["event"] == "summary"
        return event

    def refusal(self, *arguments: object, code: int = 1) -> str:
        """The one sentence that a command which fails says at its end."""
        said = self.run(*arguments, code=code).stderr.splitlines()
        assert said, "it said nothing"
        return said[-1]

    def _spark_log(self) -> str:
        return "".join(log.read_text(errors="replace")[-5_000:] for log in self.place.glob("state/*/spark.log"))
