"""Commands as tests run them, in this process and against a node, and what they say."""

import json
from collections.abc import Callable
from typing import Any

from tests.cli.running import RunningNode
from typer.testing import CliRunner, Result

from headrace.cli.main import app

Headrace = Callable[..., Result]


def headrace_at(node: RunningNode) -> Headrace:
    """Runs a command against the node; it has to succeed unless told otherwise."""
    runner = CliRunner()
    environment = {
        "HEADRACE_SERVER": node.server,
        "HEADRACE_HTTP": node.ready["http"],
        "HEADRACE_ADMIN": node.ready["admin"],
    }

    def run(*arguments: str, input: str | bytes | None = None, code: int = 0) -> Result:
        result = runner.invoke(app, list(arguments), input=input, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def check_refusal(result: Result, words: str) -> None:
    """One sentence, with these words in it, and nothing for a program to read."""
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
