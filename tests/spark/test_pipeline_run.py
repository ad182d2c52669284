"""Runs of pipelines: records, locks, stop requests, and queries that are followed to their end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import RecordingView, make_run
from tests.support.wait import wait_until

from headrace.host.clock import SystemClock
from headrace.host.other_process import ask_to_end, birth_of
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.cluster import check_cluster
from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.errors import OtherRunError, PipelineFailedError, RunInProgressError, UnknownRunError
from headrace.spark.pipeline.place import default_state, run_id
from headrace.spark.pipeline.progress import Tally, lag_of
from headrace.spark.pipeline.record import RunRecord, read_record, write_record
from headrace.spark.pipeline.registry import all_runs, ask_run_to_end, find_run, forget_run
from headrace.spark.pipeline.rollup_tick import TickReader
from headrace.spark.pipeline.run import RunSettings, execute
from headrace.spark.pipeline.summary import Summary

DONE = Summary(title="done")
IDENTITY = {"topics": "orders"}


def run_body(state: Path, body: object = lambda run: DONE, *, id: str | None = "job", **more: object) -> str:
    settings = RunSettings(state=state, id=id, **more)  # type: ignore[arg-type]
    return execute("archive", IDENTITY, body, settings, RecordingView())[0]  # type: ignore[arg-type]


# Records.


def test_the_same_work_has_the_same_id_and_other_work_another() -> None:
    assert run_id("archive", {"a": "1", "b": "2"}) == run_id("archive", {"b": "2", "a": "1"})
    assert len({run_id("archive", {"a": "1"}), run_id("archive", {"a": "2"}), run_id("replay", {"a": "1"})}) == 3


def test_state_is_kept_where_the_environment_says() -> None:
    assert default_state({"HEADRACE_STATE": "/there", "XDG_STATE_HOME": "/x"}) == Path("/there")
    assert default_state({"XDG_STATE_HOME": "/x"}) == Path("/x/headrace/pipelines")
    assert default_state({}) == Path.home() / ".local/state/headrace/pipelines"


def test_a_run_is_recorded_while_it_runs_and_when_it_is_done(tmp_path: Path) -> None:
    def body(run: Run) -> Summary:
        record = find_run(tmp_path, run.id)
        assert (record.condition, record.pid, record.run_count) == ("running", os.getpid(), 1)
        assert run.checkpoint("left") == f"{tmp_path}/{run.id}/checkpoint/left"
        run.report("reading", rows=10)
        return DONE

    id = run_body(tmp_path, body, id=None)
    record = find_run(tmp_path, id)
    assert (record.condition, record.rows, record.failure) == ("done", 10, None)
    assert record.ended_ms is not None
    run_body(tmp_path, id=None)
    assert find_run(tmp_path, id).run_count == 2


def test_a_failed_run_says_its_one_sentence(tmp_path: Path) -> None:
    def refuse(run: Run) -> Summary:
        raise OptionError("orders is no queue")

    with pytest.raises(OptionError):
        run_body(tmp_path, refuse)
    assert (find_run(tmp_path, "job").condition, find_run(tmp_path, "job").failure) == ("failed", "orders is no queue")

    def break_down(run: Run) -> Summary:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(PipelineFailedError, match="division by zero"):
        run_body(tmp_path, break_down)
    assert find_run(tmp_path, "job").condition == "failed"


def test_an_id_is_not_used_for_other_work(tmp_path: Path) -> None:
    run_body(tmp_path)
    with pytest.raises(OtherRunError, match=r"job is a run of archive \(topics orders\)"):
        execute(
            "archive", {"topics": "clicks"}, lambda run: DONE, RunSettings(state=tmp_path, id="job"), RecordingView()
        )
    forget_run(tmp_path, "job")
    assert all_runs(tmp_path) == []


@pytest.mark.parametrize("id", ["", ".", "..", "a/b", "../a"])
def test_a_name_that_is_no_run_is_unknown_and_leads_nowhere(tmp_path: Path, id: str) -> None:
    write_record(tmp_path, msgspec.structs.replace(_record(tmp_path), id="outside"))
    with pytest.raises(UnknownRunError):
        find_run(tmp_path / "state", id)


def _record(state: Path) -> RunRecord:
    run_body(state / "made")
    record = read_record(state / "made" / "job")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"id": "a b"}, "--id 'a b' is no name"),
        ({"master": "local", "remote": "sc://x"}, "exclude each other"),
        ({"remote": "spark://x"}, "write sc://HOST:PORT"),
        ({"remote": "sc://"}, "write sc://HOST:PORT"),
        ({"remote": "sc://host:port"}, "write sc://HOST:PORT"),
        ({"master": "foo"}, "--spark 'foo' is no Spark cluster"),
        ({"master": "spark://host"}, "write spark://HOST:PORT"),
        ({"master": "local[0]"}, "is no Spark cluster"),
        ({"every_s": -1.0}, "--every -1.0 is no number of seconds"),
        ({"every_s": float("inf")}, "--every inf is no number of seconds"),
        ({"every_s": float("nan")}, "--every nan is no number of seconds"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        RunSettings(state=tmp_path, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4, 2]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077", "yarn", "k8s://x"],
)
def test_every_kind_of_cluster_that_spark_has_is_taken(tmp_path: Path, master: str) -> None:
    assert RunSettings(state=tmp_path, master=master).master == master


@pytest.mark.parametrize("remote", ["sc://a", "sc://a:15002/;token=x;use_ssl=true", "sc://[::1]:15002", "local[2]"])
def test_every_connect_address_that_spark_has_is_taken(tmp_path: Path, remote: str) -> None:
    assert RunSettings(state=tmp_path, remote=remote).remote == remote


# Clusters that are not there.


def test_a_master_that_does_not_answer_is_told_before_spark_is_started() -> None:
    with closed_port() as port, pytest.raises(PipelineFailedError, match=f"no Spark master answers at .*:{port}; is"):
        check_cluster(f"spark://127.0.0.1:{port},127.0.0.1:{port}", None)


def test_one_of_several_masters_is_enough() -> None:
    with closed_port() as port, socket.create_server(("127.0.0.1", 0)) as server:
        check_cluster(f"spark://127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}", None)


def test_a_connect_server_that_does_not_answer_is_told_soon_and_without_its_token() -> None:
    with closed_port() as port, pytest.raises(PipelineFailedError) as refused:
        check_cluster(None, f"sc://127.0.0.1:{port}/;token=secret", connect_s=0.2)
    assert str(refused.value) == f"no Spark Connect server answers at sc://127.0.0.1:{port}; is one running there?"


def test_who_listens_and_does_not_speak_is_no_connect_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(PipelineFailedError, match="no Spark Connect"):
        check_cluster(None, f"sc://127.0.0.1:{server.getsockname()[1]}", connect_s=0.2)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and nobody else will."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="cannot be used for the run's state"):
        run_body(tmp_path / "file")


# Two processes.

_WAITING = """
import sys, threading
from pathlib import Path
from tests.spark.pipeline_run import RecordingView
from headrace.spark.pipeline.run import RunSettings, execute
from headrace.spark.pipeline.summary import Summary

def body(run):
    run.report("working", rows=5)
    print("ready", flush=True)
    while not run.is_stopping:
        threading.Event().wait(0.01)
    return Summary(title="asked to end")

execute("archive", {"topics": "orders"}, body, RunSettings(state=Path(sys.argv[1]), id="job"), RecordingView())
"""


# A session is being started, with a server that takes its time.
_STARTING = """
import sys
from pathlib import Path
from tests.spark.pipeline_run import RecordingView
from headrace.spark.pipeline.errors import StoppedEarlyError
from headrace.spark.pipeline.run import RunSettings, execute

class View(RecordingView):
    def progress(self, step, totals, of):
        print("ready", flush=True)

settings = RunSettings(state=Path(sys.argv[1]), id="job", remote=sys.argv[2])
try:
    execute("archive", {"topics": "orders"}, lambda run: run.spark(), settings, View())
except StoppedEarlyError:
    sys.exit(9)
"""


@contextmanager
def other_process(state: Path, script: str = _WAITING, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", script, str(state), *more], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_a_second_run_on_one_checkpoint_is_refused(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        with pytest.raises(RunInProgressError, match=f"job runs already as process {process.pid}"):
            run_body(tmp_path)
        with pytest.raises(RunInProgressError, match="stop it first"):
            forget_run(tmp_path, "job")
        assert find_run(tmp_path, "job").condition == "running"


def test_a_run_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        ask_run_to_end(tmp_path, "job")
        assert process.wait(10) == 0
    assert find_run(tmp_path, "job").condition == "stopped"
    with pytest.raises(UnknownRunError, match="does not run; it is stopped"):
        ask_run_to_end(tmp_path, "job")


def test_ctrl_c_asks_a_run_to_end(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert find_run(tmp_path, "job").condition == "stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_whose_spark_still_starts_ends_at_once_when_it_is_asked_to(tmp_path: Path, number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = f"sc://127.0.0.1:{silent.getsockname()[1]}"
        with other_process(tmp_path, _STARTING, remote) as process:
            process.send_signal(number)
            assert process.wait(10) == 9
    record = find_run(tmp_path, "job")
    assert (record.condition, record.failure) == ("stopped", None)


def test_a_killed_run_has_died_and_can_be_run_again(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        process.kill()
        process.wait(10)
        assert find_run(tmp_path, "job").condition == "died"
        with pytest.raises(UnknownRunError, match="does not run; it died"):
            ask_run_to_end(tmp_path, "job")
    run_body(tmp_path)
    assert (find_run(tmp_path, "job").condition, find_run(tmp_path, "job").run_count) == ("done", 2)


def test_a_process_that_has_the_number_of_a_dead_run_is_left_alone(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        birth = birth_of(process.pid)
        assert birth is not None
        assert not ask_to_end(process.pid, birth + "0")
        record = find_run(tmp_path, "job")
        write_record(tmp_path / "job", msgspec.structs.replace(record, birth=birth + "0"))
        assert find_run(tmp_path, "job").condition == "died"
        with pytest.raises(UnknownRunError):
            ask_run_to_end(tmp_path, "job")
        assert process.poll() is None
        assert birth_of(process.pid) == birth


# Progress.


def report(batch: int, rows: int, end: object = None, latest: object = None) -> dict[str, object]:
    return {"batchId": batch, "numInputRows": rows, "sources": [{"endOffset": end, "latestOffset": latest}]}


def test_a_batch_that_is_seen_twice_is_counted_once() -> None:
    tally = Tally()
    tally.add("a", [report(0, 5), report(1, 7)])
    tally.add("a", [report(1, 7), report(1, 0), report(2, 0)])
    tally.add("b", [report(0, 1)])
    assert tally.totals(2.0)[:2] == (13, 3)
    assert tally.totals(2.0).rows_per_second == 6.5


def test_rows_are_those_of_all_sources_where_spark_does_not_add_them_up() -> None:
    """As a Connect client is told of a batch: PySpark sets what the server has left out to None."""
    tally = Tally()
    sources = [{"numInputRows": 5, "endOffset": None}, {"numInputRows": 2, "endOffset": None}]
    tally.add("a", [{"batchId": 0, "numInputRows": None, "sources": sources}, {"batchId": 1, "sources": []}])
    assert tally.totals(1.0).rows == 7


def test_the_rows_of_a_clock_are_no_messages() -> None:
    tally = Tally()
    sources = [
        {"numInputRows": 5, "endOffset": '{"orders": {"0": 5}}'},
        {"numInputRows": 1, "endOffset": json.dumps(TickReader(0, SystemClock()).initialOffset())},
    ]
    tally.add("a", [{"batchId": 0, "numInputRows": 6, "sources": sources}])
    tally.add("b", [{"batchId": 0, "numInputRows": None, "sources": sources}])
    assert tally.totals(1.0).rows == 10


def test_rows_that_came_too_late_are_counted() -> None:
    tally = Tally()
    dropped = [{"numRowsDroppedByWatermark": 3}, {"numRowsDroppedByWatermark": 1}]
    tally.add("a", [report(0, 5) | {"stateOperators": dropped}, report(1, 5)])
    assert tally.totals(1.0).late == 4


def test_the_pace_is_that_of_the_last_seconds() -> None:
    tally = Tally()
    tally.add("a", [report(0, 1_000)])
    assert tally.totals(10.0).pace == 100
    assert tally.totals(15.0).pace == pytest.approx(1_000 / 15)
    tally.add("a", [report(1, 50)])
    later = tally.totals(25.0)
    assert (later.pace, later.rows_per_second) == (5, 42)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ('{"orders":{"0":5,"1":2}}', '{"orders":{"0":9,"1":2},"clicks":{"0":3}}', 7),
        ({"orders": {"0": 5}, "$": {"skipped": 1}}, {"orders": {"0": 5}, "$": {"skipped": 9}}, 0),
        ("5", "8", 3),
        (None, None, None),
        ("what", "ever", None),
    ],
)
def test_lag_is_what_sources_have_beyond_the_batch(end: object, latest: object, lag: int | None) -> None:
    assert lag_of(report(0, 1, end, latest)) == lag


# On Spark.


def test_a_one_shot_query_is_followed_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    spark.range(100).coalesce(1).write.parquet(str(source))
    view = RecordingView()
    run = make_run(spark, tmp_path / "run", view=view)
    for rows in (100, 0):
        rate = spark.readStream.schema("id long").parquet(str(source))
        writer = rate.writeStream.format("noop").option("checkpointLocation", run.checkpoint())
        totals = run.follow(writer.trigger(**run.trigger()).start())
        assert totals.rows == rows
    assert view.steps[-1][1].rows == 0


def test_a_continuous_query_ends_after_its_batch_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    stopping = threading.Event()
    run = make_run(spark, tmp_path / "run", continuous=True, stopping=stopping)
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rate.writeStream.format("noop").option("checkpointLocation", run.checkpoint())
    query = writer.trigger(**run.trigger()).start()
    ends: list[int] = []
    follower = threading.Thread(target=lambda: ends.append(run.follow(query).rows))
    follower.start()
    wait_until(lambda: query.lastProgress is not None, deadline_s=60, what="a batch is done")
    stopping.set()
    follower.join(60)
    assert not query.isActive
    assert query.exception() is None
    assert ends[0] >= 10


def test_a_query_that_fails_is_one_sentence_and_ends_the_others(spark: SparkSession, tmp_path: Path) -> None:
    run = make_run(spark, tmp_path / "run", continuous=True)
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    good = rate.writeStream.format("noop").option("checkpointLocation", run.checkpoint("good"))
    bad = rate.selectExpr("raise_error('the tea is cold')").writeStream.format("noop")
    bad = bad.option("checkpointLocation", run.checkpoint("bad"))
    queries = [writer.trigger(**run.trigger()).start() for writer in (good, bad)]
    with pytest.raises(PipelineFailedError, match="the tea is cold") as caught:
        run.follow(*queries)
    assert "\n" not in str(caught.value)
    assert not any(query.isActive for query in queries)
