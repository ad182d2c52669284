"""A session on machines of several kinds, one with no Java among them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.spark.errors import DataLossError, MissingExtraError, OptionError, explain, sentence_of
from headrace.spark.java import java_home, version_of
from headrace.spark.session import session

DEADLINE_S = 200


def make_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="tests"\nJAVA_VERSION="{version}"\n')
    return home


# Java.


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("11.0.2", 11)])
def test_a_java_s_version_stands_in_its_home(tmp_path: Path, text: str, version: int) -> None:
    assert version_of(make_java(tmp_path / "java", text)) == version


def test_a_home_without_a_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path) is None


def test_the_java_that_is_named_comes_before_the_one_on_the_path(tmp_path: Path) -> None:
    named, found = make_java(tmp_path / "named", "17.0.1"), make_java(tmp_path / "found", "21.0.1")
    assert java_home({"JAVA_HOME": str(named), "PATH": str(found / "bin")}) == named
    assert java_home({"PATH": str(found / "bin")}) == found


def test_a_java_on_the_path_is_found_through_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin")}) == home


def test_a_java_that_spark_does_not_run_on_is_passed_over_for_the_packaged_one(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    environment = {"JAVA_HOME": str(old), "PATH": str(old / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java_home(environment)
    assert home.parent == tmp_path / "cache" / "headrace"
    asked = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert 'version "21' in said.stderr
    assert java_home(environment) == home


def test_a_machine_where_nothing_can_be_kept_gets_a_java_all_the_same(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    home = java_home({"PATH": "", "XDG_CACHE_HOME": str(blocked)})
    assert (home / "bin" / "java").exists()


def test_a_session_works_on_a_machine_with_no_java(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for command in Path(directory).iterdir():
            if not command.name.startswith("java") and not (commands / command.name).exists():
                (commands / command.name).symlink_to(command)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": str(commands), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = (
        "from headrace.spark import session\n"
        "spark = session('no java', master='local[1]')\n"
        "print(spark.range(1000).selectExpr('sum(id)').first()[0], spark._jvm.System.getProperty('java.version'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout.startswith("499500 21."), done.stdout + done.stderr


# The session.


def test_a_session_counts_time_in_utc_and_stays_on_this_machine(spark: SparkSession) -> None:
    config = spark.sparkContext.getConf()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert config.get("spark.driver.bindAddress") == "127.0.0.1"
    assert config.get("spark.ui.enabled") == "false"


def test_a_query_that_is_refused_prints_nothing_beside_what_it_raises(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisException) as in_sql:
        spark.range(1).where("nosuch = 1").collect()
    with pytest.raises(AnalysisException) as in_python:
        spark.range(1).select("nosuch").collect()
    for caught in (in_sql, in_python):
        assert sentence_of(caught.value).endswith("Did you mean one of the following? [`id`]")
    assert capfd.readouterr().err == ""


def test_workers_run_the_python_that_made_the_session(spark: SparkSession) -> None:
    def python(numbers: object) -> list[str]:
        import sys

        return [sys.executable]

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(python).collect() == [sys.executable]


def test_configuration_that_is_given_comes_before_what_is_set_here(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    again = session("again", master="local[2]", config={"spark.sql.session.timeZone": "Europe/Vienna"})
    try:
        assert again.conf.get("spark.sql.session.timeZone") == "Europe/Vienna"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_spark_that_is_not_installed_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"^Spark is not installed; run `pip install '\.\[spark\]'` in a"):
        session()


# The one sentence in what Spark raises.


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the "
        "Python worker: headrace.spark.errors.DataLossError: orders-0 is gone: all of it\n SQLSTATE: 38000 SQLSTATE: "
        "XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]",
        'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "x.py", line 1\n'
        "    raise ValueError\nheadrace.spark.errors.DataLossError: orders-0 is gone: all of it\n",
        "[PYTHON_DATA_SOURCE_ERROR] Failed: headrace.model.errors.UnknownTopicError: orders-0 is gone: all of it"
        " SQLSTATE: 38000",
    ],
)
def test_headrace_s_sentence_is_found_in_what_spark_makes_of_it(text: str) -> None:
    assert explain(RuntimeError(text)) == "orders-0 is gone: all of it"


def test_the_innermost_sentence_of_somebody_else_s_error_is_found() -> None:
    text = '[PYTHON_EXCEPTION]:\nTraceback (most recent call last):\n  File "x.py"\nValueError: no such colour\n'
    assert explain(RuntimeError(text)) == "no such colour"


def test_an_error_that_went_through_nothing_is_its_own_sentence() -> None:
    assert explain(OptionError("say less")) == "say less"
    assert explain(DataLossError("gone")) == "gone"
    assert explain(RuntimeError("\n first line\nsecond")) == "first line"
