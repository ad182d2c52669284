"""The pipeline `replay`: chosen messages of an archive back into topics and queues, once for each job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import RecordingView, make_run
from tests.spark.source_data import create, read, send, values
from tests.support.node import NodeProcess

from headrace.client.queue.sync import Client
from headrace.client.values import Outgoing
from headrace.host.clock import SystemClock
from headrace.spark.errors import OptionError
from headrace.spark.lake.reading import Snapshot
from headrace.spark.pipeline import archive, replay
from headrace.spark.pipeline.archive import ArchiveOptions
from headrace.spark.pipeline.replay import Pace, Piece, ReplayOptions, cut
from headrace.spark.pipeline.summary import Summary

NOON_MS = 1_772_452_800_000  # 2 March 2026
MESSAGES = [
    Outgoing(
        f"order {number}".encode(),
        key=f"key-{number % 5}".encode(),
        headers=(("kind", b"even" if number % 2 == 0 else b"odd"), ("kind", b"second")),
        timestamp_ms=NOON_MS + number * 1000,
    )
    for number in range(100)
]


class Lake:
    """An archive of one topic with a hundred messages."""

    def __init__(self, spark: SparkSession, node: NodeProcess, place: Path, topic: str) -> None:
        self.spark = spark
        self.node = node
        self.place = place
        self.topic = topic
        self.table = place / "table"
        self.view = RecordingView()

    def fill(self, messages: list[Outgoing]) -> None:
        send(self.node, self.topic, messages)
        options = ArchiveOptions(server=self.node.server, table=str(self.table), topics=(self.topic,))
        archive.run(self.spark, options, make_run(self.spark, self.place / "archive"))

    def replay(self, to: str, *, state: str = "replay", **options: Any) -> Summary:
        settings = ReplayOptions(server=self.node.server, http=self.node.http, table=str(self.table), to=to, **options)
        run = make_run(self.spark, self.place / state, view=self.view)
        return replay.run(self.spark, settings, run)

    def read(self, topic: str) -> list[Any]:
        frame = read(self.spark, self.node, subscribe=topic, includeHeaders="true")
        return frame.orderBy("partition", "offset").collect()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(spark, node, tmp_path_factory.mktemp("lake"), "replay-source")
    create(node, made.topic, partitions=3, retention_ms="-1")
    made.fill(MESSAGES)
    return made


@pytest.fixture
def target(lake: Lake, topic: str) -> str:
    create(lake.node, topic, partitions=2, retention_ms="-1")
    return topic


def order_of_keys(rows: Sequence[Any]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for row in rows:
        found.setdefault(bytes(row["key"]), []).append(bytes(row["value"]).decode())
    return found


def test_messages_come_back_as_they_were_with_the_place_that_they_had(lake: Lake, target: str) -> None:
    summary = lake.replay(target, state="all", job="all")
    assert summary.figures == {"job": "all", "sent": 100, "left": 0}
    rows = lake.read(target)
    assert len(rows) == 100
    originals = {bytes(row["value"]): row for row in lake.read(lake.topic)}
    for row in rows:
        original = originals[bytes(row["value"])]
        assert (row["key"], row["timestamp"]) == (original["key"], original["timestamp"])
        headers = [(header["key"], bytes(header["value"])) for header in row["headers"]]
        assert headers == [
            *((header["key"], bytes(header["value"])) for header in original["headers"]),
            ("replay-job", b"all"),
            ("replay-topic", lake.topic.encode()),
            ("replay-partition", str(original["partition"]).encode()),
            ("replay-offset", str(original["offset"]).encode()),
        ]
    assert order_of_keys(rows) == order_of_keys(sorted(originals.values(), key=lambda row: row["timestamp"]))


def test_a_job_sends_its_messages_once_even_when_nothing_is_remembered_here(lake: Lake, target: str) -> None:
    assert lake.replay(target, state="once-1", job="once", keys=("key-1",)).figures["sent"] == 20
    again = lake.replay(target, state="once-2", job="once", keys=("key-1",))
    assert again.figures["sent"] == 0
    assert "was done before" in again.notes[0]
    assert lake.replay(target, state="once-3", job="twice", keys=("key-1",)).figures["sent"] == 20
    assert len(lake.read(target)) == 40


def test_a_job_that_ended_in_the_middle_goes_on_behind_what_it_sent(lake: Lake, target: str) -> None:
    class Ended(Exception):
        pass

    class EndsAfterTwoPieces(RecordingView):
        def progress(self, step: str, totals: Any, of: int | None) -> None:
            super().progress(step, totals, of)
            if len([one for one, _, _ in self.steps if one == "sending"]) == 2:
                raise Ended

    lake.view = EndsAfterTwoPieces()
    with pytest.raises(Ended):
        lake.replay(target, state="middle-1", job="middle", piece_rows=10)
    lake.view = RecordingView()
    sent = len(lake.read(target))
    assert 0 < sent < 100
    rest = lake.replay(target, state="middle-2", job="middle", piece_rows=1000)
    assert rest.figures["sent"] == 100 - sent
    assert sorted(values(lake.read(target))) == sorted(message.value.decode() for message in MESSAGES if message.value)


def test_a_job_is_refused_for_another_selection_than_the_one_it_was_begun_for(lake: Lake, target: str) -> None:
    assert lake.replay(target, state="other-1", job="other", keys=("key-1",)).figures["sent"] == 20
    with pytest.raises(OptionError, match=r"--job other was begun for another selection \(--key \['key-1'\]\)"):
        lake.replay(target, state="other-2", job="other", keys=("key-2",))
    assert len(lake.read(target)) == 20


def test_what_is_archived_later_belongs_to_another_job_on_every_machine(
    spark: SparkSession, node: NodeProcess, tmp_path: Path, topic: str
) -> None:
    lake = Lake(spark, node, tmp_path, topic)
    create(node, topic, partitions=3, retention_ms="-1")
    create(node, f"{topic}-again", partitions=2, retention_ms="-1")
    lake.fill(MESSAGES[:20])
    assert lake.replay(f"{topic}-again", state="here", job="fixed", piece_rows=5).figures["sent"] == 20
    lake.fill(MESSAGES[20:50])
    for state in ("here", "there"):
        again = lake.replay(f"{topic}-again", state=state, job="fixed", piece_rows=5)
        assert again.figures == {"job": "fixed", "sent": 0, "left": 0}
    assert lake.replay(f"{topic}-again", state="there", job="later").figures["sent"] == 50


def test_a_job_that_found_nothing_has_not_begun(
    spark: SparkSession, node: NodeProcess, tmp_path: Path, topic: str
) -> None:
    lake = Lake(spark, node, tmp_path, topic)
    create(node, topic, retention_ms="-1")
    create(node, f"{topic}-again", retention_ms="-1")
    lake.fill(MESSAGES[:10])
    assert lake.replay(f"{topic}-again", job="early", from_ms=NOON_MS + 10_000).figures["sent"] == 0
    lake.fill(MESSAGES[10:20])
    assert lake.replay(f"{topic}-again", job="early", from_ms=NOON_MS + 10_000).figures["sent"] == 10


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"from_ms": NOON_MS + 10_000, "until_ms": NOON_MS + 12_000}, [10, 11]),
        ({"keys": ("key-3",), "until_ms": NOON_MS + 10_000}, [3, 8]),
        ({"where": "headers['kind'] = 'odd' and body like 'order 1%' and key = 'key-1'"}, [1, 11]),
        ({"where": "partition < 0"}, []),
        ({"topics": ("another",)}, []),
    ],
)
def test_messages_are_chosen_by_time_key_and_condition(lake: Lake, options: dict[str, Any], numbers: list[int]) -> None:
    found = replay.chosen(
        Snapshot(lake.table).frame(lake.spark),
        ReplayOptions(server=lake.node.server, table=str(lake.table), to="any", **options),
    ).collect()
    assert sorted(values(found)) == sorted(f"order {number}" for number in numbers)


def test_a_dry_run_counts_and_sends_nothing(lake: Lake, target: str) -> None:
    summary = lake.replay(target, state="dry", is_dry=True, where="offset < 5")
    counted = {row["partition"]: row["messages"] for row in summary.as_json()["rows"]}
    assert sum(counted.values()) == summary.figures["messages"]
    assert all(count <= 5 for count in counted.values())
    assert lake.read(target) == []


def test_partitions_are_kept_where_asked(lake: Lake, topic: str) -> None:
    create(lake.node, topic, partitions=3, retention_ms="-1")
    lake.replay(topic, state="partitions", job="partitions", keeps_partitions=True)
    places = [(row["partition"], row["offset"], bytes(row["value"])) for row in lake.read(topic)]
    assert places == [(row["partition"], row["offset"], bytes(row["value"])) for row in lake.read(lake.topic)]


def test_a_queue_gets_messages_that_its_workers_receive_now(lake: Lake, topic: str) -> None:
    """Not at the time that they have in the archive, when they would long be too old for it."""
    with Client(lake.node.http) as client:
        queue = client.queue(topic)
        queue.create()
        lake.replay(topic, state="queue", job="queue", is_queue=True, keys=("key-4",))
        received: dict[str, str] = {}
        while len(received) < 20:
            for message in queue.receive(max=10, wait=5):
                received[message.body.decode()] = dict(message.headers)["replay-timestamp-ms"].decode()
                message.ack()
        assert received == {f"order {number}": str(NOON_MS + number * 1000) for number in range(4, 100, 5)}


def test_a_bad_condition_is_refused_by_one_sentence(lake: Lake) -> None:
    with pytest.raises(
        OptionError, match=r"--where .boddy = 1. is no condition over messages: [^;]*; the columns are topic"
    ):
        lake.replay("any", state="bad", where="boddy = 1")


def test_buckets_are_joined_to_pieces_of_the_asked_size() -> None:
    buckets = [Piece(0, 10, 4), Piece(10, 20, 4), Piece(50, 60, 9), Piece(60, 70, 1)]
    assert list(cut(buckets, 8)) == [Piece(0, 20, 8), Piece(50, 60, 9), Piece(60, 70, 1)]
    assert list(cut([], 8)) == []


def test_a_rate_is_kept_by_waiting() -> None:
    class Still(SystemClock):
        now_ms = 0

        def monotonic_ms(self) -> int:
            return self.now_ms

    clock = Still()
    pace = Pace(100, clock)
    assert pace.left_ms(200) == 2000
    clock.now_ms = 1500
    assert pace.left_ms(200) == 500
    assert Pace(None, clock).left_ms(200) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"to": "a b"}, "--to a b"),
        ({"topics": ("a b",)}, "--topic a b"),
        ({"from_ms": 2, "until_ms": 2}, "--until is not after"),
        ({"rate": 0}, "--rate"),
        ({"piece_rows": 0}, "--piece-rows"),
        ({"is_queue": True, "keeps_partitions": True}, "--keep-partitions"),
        ({"job": "j" * 101}, "--job has 101 characters"),
        ({"table": "s3://x/y"}, "not on a file system"),
    ],
)
def test_options_that_cannot_be_are_refused_before_spark_starts(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        ReplayOptions(**{"server": "127.0.0.1:1", "table": "/x", "to": "a", **options})
