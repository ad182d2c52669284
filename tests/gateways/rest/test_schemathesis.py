"""schemathesis reads the description and looks for whatever the node does otherwise, in single requests and in rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.node import running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SEED = os.environ.get("HEADRACE_TEST_SEED", "3")


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_schemathesis_finds_nothing(listener: str, tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        address = next(line[listener] for line in node.said("listening") if listener in line)
        run = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"),
                *("--config-file", str(HERE / "schemathesis.toml"), "run", f"http://{address}/openapi.json"),
                *("--seed", SEED, "--no-color", "--workers", "1"),
                # One listener is asked everything, the other what only it does.
                *(
                    ("--include-path-regex", "^/queues/[^/]+$|^/queues$", "--phases", "fuzzing,stateful")
                    if listener == "admin"
                    else ()
                ),
            ],
            cwd=ROOT,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.gateways.rest.schemathesis_hooks", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-8000:]
        assert not node.said("HTTP request failed"), node.log_text()[-4000:]
