"""`headrace pipeline run archive` and `replay`, as a person gives them."""

import os
from pathlib import Path

import pytest
from tests.spark.command import Command
from tests.spark.source_data import create, produce
from tests.support.node import NodeProcess


@pytest.mark.skipif(not os.environ.get("HEADRACE_LONG"), reason="starts a JVM for each of four commands")
@pytest.mark.timeout(900)
def test_what_was_archived_is_replayed_once(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    create(node, topic, partitions=2)
    create(node, f"{topic}-again", partitions=2)
    produce(node, topic, [str(number) for number in range(50)])
    command = Command(node, tmp_path)
    table = tmp_path / "lake"
    for added in (50, 0):
        (row,) = command.summary("archive", "--topic", topic, "--table", table)["rows"]
        assert (row["topic"], row["added"], row["rows"], row["lag"]) == (topic, added, 50, 0)
    for sent in (25, 0):
        figures = command.summary(
            "replay", "--table", table, "--where", "cast(body as int) % 2 = 0", "--to", f"{topic}-again"
        )["figures"]
        assert figures["sent"] == sent


def test_wrong_options_are_refused_by_one_sentence(node: NodeProcess, tmp_path: Path) -> None:
    command = Command(node, tmp_path)
    archive = ("pipeline", "run", "archive", "--table", tmp_path / "lake")
    replay = ("pipeline", "run", "replay", "--table", tmp_path)
    assert "nothing to archive" in command.refusal(*archive, code=2)
    assert "--to TOPIC or --to-queue QUEUE" in command.refusal(*replay, code=2)
    assert "there is no Delta table" in command.refusal(*replay, "--to", "a", code=2)
    assert "--from 'noon' is no time" in command.refusal(*replay, "--to", "a", "--from", "noon", code=2)
    assert "--spark 'foo' is no Spark cluster" in command.refusal(*archive, "--topic", "a", "--spark", "foo", code=2)
