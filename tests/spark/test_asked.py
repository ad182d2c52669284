"""What is said before a session is started: addresses and places that cannot be, nodes and names that are not there."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.spark.pipeline_run import RecordingView
from tests.spark.source_data import create
from tests.support.node import NodeProcess

from headrace.client.errors import UnreachableError
from headrace.model.errors import HeadraceError, UnknownQueueError, UnknownTopicError
from headrace.spark.errors import OptionError
from headrace.spark.pipeline import archive, audit, dead_letters, replay
from headrace.spark.pipeline.archive import ArchiveOptions
from headrace.spark.pipeline.audit import AuditOptions
from headrace.spark.pipeline.capacity_run import CapacityOptions
from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.dead_letters import DeadLetterOptions
from headrace.spark.pipeline.measure import Measurement
from headrace.spark.pipeline.rollup import RollupOptions
from headrace.spark.pipeline.run import RunSettings, execute
from headrace.spark.pipeline.summary import Summary

NOWHERE = "127.0.0.1:1"
SERVER = "127.0.0.1:9092"


def checked(tmp_path: Path, options: ArchiveOptions) -> RecordingView:
    """An archive is checked, in a run whose session nobody has asked for."""
    view = RecordingView()

    def body(run: Run) -> Summary:
        archive.check(options, run)
        assert not run.has_session
        return Summary(title="checked")

    execute("archive", options.identity(), body, RunSettings(state=tmp_path / "state"), view)
    return view


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (lambda: ArchiveOptions(server="foo", table="t", topics=("a",)), "--server: 'foo' has no port"),
        (lambda: ArchiveOptions(server=SERVER, http="foo", table="t", queues=("a",)), "--http: 'foo' has no port"),
        (
            lambda: ArchiveOptions(server=SERVER, table="t", topics=("a",), upkeep_minutes=float("nan")),
            "--upkeep is nan minutes",
        ),
        (lambda: AuditOptions(server="a:b", topics=("a",)), "--server: 'a:b' has no valid port"),
        (lambda: AuditOptions(server=SERVER, topics=("a",), findings="s3://a/b"), "is not on a file system"),
        (
            lambda: AuditOptions(server=SERVER, topics=("a",), to="b", is_live=True, patience_s=float("inf")),
            "--patience is a number above 0 seconds, not inf",
        ),
        (lambda: RollupOptions(server="foo"), "--server: 'foo' has no port"),
        (lambda: RollupOptions(server=SERVER, table="s3://a/b"), "is not on a file system"),
        (lambda: RollupOptions(server=SERVER, report=Path()), "--report . is a directory"),
        (lambda: RollupOptions(server=SERVER, hours=float("inf")), "--hours inf has to be above zero, and not more"),
        (lambda: DeadLetterOptions(queues=("a",), http="foo"), "--http: 'foo' has no port"),
        (lambda: DeadLetterOptions(queues=("a",), report=Path("/")), "--report / is a directory"),
        (lambda: CapacityOptions(report=Path("/tmp")), "--report /tmp is a directory"),
        (
            lambda: CapacityOptions(
                measurement=Measurement(server="foo", http=NOWHERE, message_bytes=1, batch=1, seconds=1)
            ),
            "--server: 'foo' has no port",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(options: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        options()  # type: ignore[operator]


def test_a_relative_path_is_another_job_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        seen.append(RollupOptions(server=SERVER, table="table").identity())
        seen.append(AuditOptions(server=SERVER, topics=("a",), findings="found", is_live=True).identity())
    assert seen[0] != seen[2]
    assert seen[1] != seen[3]


def test_a_node_that_does_not_answer_is_told_with_the_option_of_the_command(tmp_path: Path) -> None:
    said = f"no node answers at {NOWHERE}; start one with `headrace up`, or say where it is with --server"
    with pytest.raises(UnreachableError) as refused:
        checked(tmp_path, ArchiveOptions(server=NOWHERE, table=str(tmp_path / "table"), topics=("a",)))
    assert str(refused.value) == said
    with pytest.raises(UnreachableError) as refused:
        audit.check(AuditOptions(server=NOWHERE, topics=("a",)))
    assert str(refused.value) == said
    with pytest.raises(UnreachableError):
        dead_letters.check(DeadLetterOptions(queues=("a",), http=NOWHERE))


def test_a_name_that_is_not_there_is_told_before_a_session(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    create(node, topic)
    table, absent = str(tmp_path / "table"), f"{topic}-absent"

    def archived(**names: tuple[str, ...]) -> ArchiveOptions:
        return ArchiveOptions(server=node.server, http=node.http, table=table, **names)  # type: ignore[arg-type]

    checked(tmp_path, archived(topics=(topic,)))
    refusals: list[tuple[type[HeadraceError], object]] = [
        (UnknownTopicError, lambda: checked(tmp_path, archived(topics=(topic, absent)))),
        (UnknownQueueError, lambda: checked(tmp_path, archived(queues=(absent,)))),
        (UnknownTopicError, lambda: audit.check(AuditOptions(server=node.server, topics=(topic, absent)))),
        (UnknownQueueError, lambda: dead_letters.check(DeadLetterOptions(queues=(absent,), http=node.http))),
    ]
    for kind, ask in refusals:
        with pytest.raises(kind, match=f"there is no (topic|queue) {topic}"):
            ask()  # type: ignore[operator]
    with pytest.raises(UnknownQueueError, match=f"{topic} is a topic and not a queue"):
        checked(tmp_path, archived(queues=(topic,)))


def test_a_pattern_that_nothing_matches_yet_is_said(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    options = ArchiveOptions(server=node.server, table=str(tmp_path / "table"), pattern=f"{topic}.*")
    assert checked(tmp_path, options).notes == [
        f"No topic matches '{topic}.*' yet; what matches it is archived by a later run."
    ]
    create(node, topic)
    assert checked(tmp_path, options).notes == []


def test_a_table_that_is_no_archive_is_told_before_a_session(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"a": [1]}))
    said = f"{table} is no archive: it has no column topic"
    with pytest.raises(OptionError, match=said):
        replay.check(replay.ReplayOptions(server=SERVER, table=str(table), to="a"))
    with pytest.raises(OptionError, match=said):
        audit.check(AuditOptions(server=SERVER, lake=str(table)))
