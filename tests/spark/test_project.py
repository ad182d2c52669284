"""Projects of users: `headrace pipeline init` makes one over their topics, `headrace pipeline run` runs it."""

import ast
import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.spark.command import Command
from tests.spark.topic_sink import create_topic, values
from tests.support.node import HEADRACE, NodeProcess

from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.spark.errors import OptionError
from headrace.spark.project.options import ProjectOptions
from headrace.spark.project.place import open_project
from headrace.spark.project.shape import Fields, columns, shape_of_messages
from headrace.spark.project.template import project_files, table_names

LONG = bool(os.environ.get("HEADRACE_LONG"))


@pytest.fixture
def command(node: NodeProcess, tmp_path: Path) -> Command:
    return Command(node, tmp_path)


def send(node: NodeProcess, topic: str, *messages: bytes) -> None:
    async def main() -> None:
        async with StreamClient(node.server) as client:
            await client.produce(topic, [Outgoing(message) for message in messages])

    asyncio.run(main())


def orders(first: int, last: int) -> list[bytes]:
    return [json.dumps({"order": number, "tea": "green", "price": 2.5}).encode() for number in range(first, last)]


def row_counts(summary: dict[str, Any]) -> dict[str, int | None]:
    return {row["name"]: row["rows"] for row in summary["rows"]}


# What is run.


def test_a_project_is_run_again_and_takes_what_is_new(
    node: NodeProcess, command: Command, tmp_path: Path, topic: str
) -> None:
    create_topic(node, topic, partitions=2)
    send(node, topic, *orders(0, 40))
    command.run("pipeline", "init", "shop", "--topics", topic)
    table = topic.replace("-", "_")

    first = command.summary("shop")
    assert first["title"] == "shop is up to date"
    assert row_counts(first) == {table: 40, f"{table}_by_minute": 1, f"{table}_checked": None}

    send(node, topic, *orders(40, 50), b"no JSON at all")
    second = row_counts(command.summary("shop"))
    assert second[table] == 51
    # What could be read, each once, and not what could not.
    found = values(node, f"{topic}-checked", partitions=_partition_count(node, f"{topic}-checked"))
    assert sorted((json.loads(text)["order"], count) for text, count in found.items()) == [(n, 1) for n in range(50)]
    # The catalogue's log too is where the project is, and not where the command was given.
    assert {path.name for path in tmp_path.iterdir()} == {"shop", "state"}


def _partition_count(node: NodeProcess, topic: str) -> int:
    async def main() -> int:
        async with StreamClient(node.server) as client:
            return len(await client.partitions(topic))

    return asyncio.run(main())


@pytest.mark.skipif(not LONG, reason="starts Spark six times")
def test_a_project_is_checked_and_refreshed_and_says_in_a_sentence_why_it_fails(
    node: NodeProcess, command: Command, tmp_path: Path, topic: str
) -> None:
    create_topic(node, topic)
    send(node, topic, *orders(0, 10))
    command.run("pipeline", "init", "shop", "--topics", topic)
    table = topic.replace("-", "_")
    assert command.summary("shop", "--dry-run")["title"] == "shop can be run"
    assert not (tmp_path / "shop" / "state" / "warehouse" / table).exists()
    assert row_counts(command.summary("shop"))[table] == 10
    assert row_counts(command.summary("shop", "--full-refresh-all"))[table] == 10

    file = tmp_path / "shop" / "transformations" / f"{table}.py"
    written = file.read_text()
    for right, wrong, sentence in (
        ('F.count("*")', 'count("*")', "NameError: name 'count' is not defined"),
        ('"partition", "offset")', '"partition", "offsets")', "`offsets` cannot be resolved"),
        ('"startingOffsets"', '"startingOfsets"', "did you mean startingOffsets?"),
    ):
        file.write_text(written.replace(right, wrong))
        said = command.refusal("pipeline", "run", "shop")
        assert said.startswith("error: ")
        assert sentence in said


SLOW = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def slow() -> DataFrame:
    return spark.range(0, 600, 1, 600).selectExpr("java_method('java.lang.Thread', 'sleep', bigint(5000))")
"""


@pytest.mark.skipif(not LONG, reason="starts Spark once more")
def test_a_project_that_is_asked_to_stop_ends_soon(command: Command, tmp_path: Path) -> None:
    command.run("pipeline", "init", "shop", "--topics", "any", "--blind")
    (tmp_path / "shop" / "transformations" / "any.py").write_text(SLOW)
    running = subprocess.Popen(
        [*HEADRACE, "pipeline", "run", "shop", "--id", "slow", "--json"],
        cwd=tmp_path,
        env=command.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    lines = iter(running.stdout)
    for line in lines:
        if "slow is" in line:
            break
    command.run("pipeline", "stop", "slow", "--wait", "60")
    assert "shop was stopped" in list(lines)[-1]
    assert running.wait(60) == 0
    running.stdout.close()


# What is refused before Spark starts.


def test_a_project_is_not_made_over_something(command: Command, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    assert "is not overwritten" in command.refusal("pipeline", "init", "shop", "--topics", "orders", "--blind", code=2)
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["mine.txt"]


def test_a_topic_that_is_missing_is_named(command: Command, tmp_path: Path) -> None:
    assert "no-such-topic" in command.refusal("pipeline", "init", "shop", "--topics", "no-such-topic")
    assert not (tmp_path / "shop").exists()


def test_without_a_node_messages_are_taken_as_text(command: Command, tmp_path: Path) -> None:
    said = command.run("pipeline", "init", "shop", "--topics", "one,two", "--blind", "--server", "127.0.0.1:1").stdout
    assert "Messages of one, two are taken as text." in said
    assert "from_json" not in ast.dump(ast.parse((tmp_path / "shop/transformations/one.py").read_text()))


def test_a_directory_without_a_spec_is_no_project(command: Command, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    assert "headrace pipeline init" in command.refusal("pipeline", "run", "shop", code=2)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("name: [x", "while parsing"),
        ("name: shop", "storage"),
        ("name: shop\nstorage: state\nlibrary: x", "library"),
        ("- shop", "`shop` is unexpected"),
        ("just text", "has not the form of a spec|is unexpected"),
        ("name: shop\nstorage: state\nconfiguration: {a: 1}", "a"),
    ],
)
def test_a_spec_that_cannot_be_is_told_with_its_file(tmp_path: Path, spec: str, reason: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    with pytest.raises(OptionError, match=r"spark-pipeline\.yml cannot be used: .*" + reason):
        open_project(tmp_path)


def test_a_storage_without_a_scheme_moves_with_the_project(tmp_path: Path) -> None:
    (tmp_path / "spark-pipeline.yml").write_text("name: shop\nstorage: state/checkpoints")
    project = open_project(tmp_path)
    assert project.storage(None) == (tmp_path / "state/checkpoints").as_uri()
    assert project.storage("s3a://bucket/x") == "s3a://bucket/x"


def test_refreshing_all_and_some_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="--full-refresh-all means every table"):
        ProjectOptions(full_refresh_all=True, refresh=("orders",))
    with pytest.raises(OptionError, match="--dry-run changes no table"):
        ProjectOptions(is_dry=True, full_refresh=("orders",))


# The shape of messages.


def shape(*messages: object) -> list[str] | None:
    found = shape_of_messages(json.dumps(message).encode() for message in messages)
    return None if found is None else columns(found)


def test_the_shape_is_what_all_messages_fit_into() -> None:
    assert shape({"a": 1, "b": None}, {"a": 1.5, "b": "x"}, {"c": True}) == ["a DOUBLE", "b STRING", "c BOOLEAN"]
    assert shape({"a": {"b": [1, 2]}}, {"a": {"c": [{"d": 1}]}}) == [
        "a STRUCT<b: ARRAY<BIGINT>, c: ARRAY<STRUCT<d: BIGINT>>>"
    ]


def test_what_contradicts_itself_is_text() -> None:
    assert shape({"a": 1}, {"a": [1]}, {"a": {"b": 1}}) == ["a STRING"]
    assert shape({"a": {}, "b": [], "c": None}) == ["a STRING", "b ARRAY<STRING>", "c STRING"]
    assert shape({"a": {str(number): number for number in range(1000)}}) == ["a STRING"]


def test_messages_that_are_mostly_no_objects_have_no_shape() -> None:
    assert shape() is None
    assert shape([1]) is None
    assert shape({"a": 1}, "text") is None
    assert shape({"a": 1}, "text", {"a": 2}) == ["a BIGINT"]
    assert shape_of_messages([b"\xff", b"{}"]) is None
    assert shape_of_messages([None, b'{"a": 1}']) == shape_of_messages([b'{"a": 1}'])


def test_odd_names_are_quoted_and_names_that_differ_by_capitals_come_once() -> None:
    assert shape({"first name": 1, "tick`s": 2, "Id": 3, "id": "x"}) == [
        "`first name` BIGINT",
        "`tick``s` BIGINT",
        "Id BIGINT",
    ]


# The text of a project.


def test_the_files_of_a_project_are_python_whatever_topics_and_fields_are_called() -> None:
    odd = shape_of_messages([json.dumps({'quo"te': 1, "back\\slash": 2, "malformed": True}).encode()])
    assert isinstance(odd, Fields)
    made = project_files("shop", "shop", "127.0.0.1:9092", {"class": odd, "9.lives": None, "spark": None})
    files = {name: text for name, text in made.items() if name.endswith(".py")}
    assert set(files) == {
        f"transformations/{name}.py" for name in ("class_messages", "topic_9_lives", "spark_messages")
    }
    for text in files.values():
        ast.parse(text)
        assert max(map(len, text.splitlines())) <= 120
    (shaped,) = (
        node.value.value
        for node in ast.walk(ast.parse(files["transformations/class_messages.py"]))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    )
    assert isinstance(shaped, str)
    assert '`quo"te` BIGINT' in shaped
    assert "`back\\slash` BIGINT" in shaped
    assert "malformed_ STRING" in shaped


def test_two_topics_that_would_be_one_table_are_refused() -> None:
    with pytest.raises(OptionError, match="would both be the table a_b"):
        table_names(["a-b", "A.b"])
