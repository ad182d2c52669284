"""What `--help` shows of every command."""

from collections.abc import Iterator

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli.main import app


def commands(command: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    command = get_command(app) if command is None else command
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_a_switch_is_shown_without_a_value_and_a_name_once(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert "--help" in shown.output
    for noise in ("<bool>", "...}...", "[["):
        assert noise not in shown.output
