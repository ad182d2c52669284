"""`headrace config`, and how the command line refuses and explains."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app

runner = CliRunner()


def test_show_prints_each_value_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "node.toml"
    file.write_text("node_id = 9\n")
    monkeypatch.setenv("HEADRACE_KAFKA_LISTEN", "127.0.0.1:9192")
    result = runner.invoke(app, ["config", "show", "--config", str(file), "--json"])
    assert result.exit_code == 0, result.output
    settings = {setting["path"]: setting for setting in json.loads(result.stdout)}
    assert (settings["node_id"]["value"], settings["node_id"]["origin"]) == (9, f"file {file}")
    assert settings["kafka.listen"]["origin"] == "environment HEADRACE_KAFKA_LISTEN"
    assert settings["http.listen"]["origin"] == "default"


def test_show_prints_a_table_for_people() -> None:
    result = runner.invoke(app, ["config", "show"])
    assert "kafka.listen" in result.stdout
    assert "HEADRACE_KAFKA_LISTEN" in result.stdout


def test_check_says_what_is_wrong_in_one_sentence_on_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[topics]\nreplication = 3\n")
    result = runner.invoke(app, ["config", "check", "--config", str(file)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert (
        result.stderr
        == f"error: file {file}: topics.replication: 3 replicas need as many nodes, and this is a single one\n"
    )


def test_check_is_content_with_the_defaults() -> None:
    assert runner.invoke(app, ["config", "check"]).exit_code == 0
    assert json.loads(runner.invoke(app, ["config", "check", "--json"]).stdout)["ok"] is True


def test_check_counts_what_differs_from_the_defaults_and_not_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'node_id = 9\n[kafka]\nlisten = "127.0.0.1:9092"\n'
        "[topics.defaults]\nretention.ms = 604800000\nmin.cleanable.dirty.ratio = 0.25\n"
    )
    result = runner.invoke(app, ["config", "check", "--config", str(file), "--json"])
    assert json.loads(result.stdout)["changed"] == 2


def test_up_refuses_to_listen_for_other_machines_before_it_starts_anything(tmp_path: Path) -> None:
    result = runner.invoke(app, ["up", "--data", str(tmp_path / "data"), "--kafka", "192.0.2.1:9092"])
    assert result.exit_code == 1
    assert "flag --kafka" in result.stderr
    assert "no authentication" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "create"],
        ["topic", "alter", "orders"],
        ["consume", "orders", "--from", "somewhere"],
        ["consume", "orders", "--last", "3", "--since", "2026-01-01"],
        ["consume", "orders", "--json", "--format", "%s"],
        ["produce", "orders", "--key", "a", "--key-delimiter", ":"],
        ["topic", "create", "orders", "--set", "retention.ms"],
    ],
)
def test_wrong_use_ends_with_exit_code_2(arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


def test_a_server_that_is_not_there_is_named_with_what_to_try() -> None:
    result = runner.invoke(app, ["topic", "list", "--server", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: 127.0.0.1:1 cannot be reached")
    assert "headrace up" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "topic",
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "log",
        "log dump",
        "log verify",
        "config",
        "config show",
        "config check",
    ],
)
def test_every_command_has_help(command: str) -> None:
    result = runner.invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.stdout
