"""The pieces of the Delta sink that need no Spark: what is split, trimmed, refused, and decided at a commit."""

import datetime
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType, YearMonthIntervalType
from tests.spark.lake_rows import A_TOPIC, a_plan, files_in, rows_of, stored, written

from headrace.host.rand import SystemRand
from headrace.spark.errors import ColumnError, OptionError, SchemaDriftError
from headrace.spark.lake.commit import Plan, add_batch, add_offsets, remove_unknown
from headrace.spark.lake.data_sink import make_plan
from headrace.spark.lake.key import Mark, PartitionKey
from headrace.spark.lake.keying import ByBatch
from headrace.spark.lake.part_file import PartFiles
from headrace.spark.lake.schema import added_columns, check_columns, delta_schema
from headrace.spark.lake.sink_option import parse_options
from headrace.spark.lake.span import joined, spans_of, without_known
from headrace.spark.lake.split import directory, split

# Splitting.


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, None])), max_size=30),
)
def test_rows_are_split_by_their_values_and_keep_their_order(pairs: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {
            "topic": pa.array([topic for topic, _ in pairs], pa.string()),
            "number": pa.array([number for _, number in pairs], pa.int64()),
            "place": pa.array(range(len(pairs)), pa.int64()),
        }
    )
    parts = list(split(table, ["topic", "number"]))
    assert len({values for values, _ in parts}) == len(parts) == len(set(pairs))
    for values, rows in parts:
        expected = [
            place
            for place, (topic, number) in enumerate(pairs)
            if values == (topic, None if number is None else str(number))
        ]
        assert rows["place"].to_pylist() == expected


def test_values_are_spelled_as_the_delta_protocol_wants_them() -> None:
    table = pa.table(
        {
            "text": [""],
            "day": [datetime.date(2026, 3, 1)],
            "flag": [True],
            "time": pa.array([1_000_001], pa.timestamp("us", "UTC")),
            "rest": [1],
        }
    )
    ((values, _),) = split(table, ["text", "day", "flag", "time"])
    assert values == (None, "2026-03-01", "true", "1970-01-01 00:00:01.000001")


def test_a_directory_names_columns_and_values() -> None:
    assert directory(["topic", "day"], ("a/b c", None)) == "topic=a%2Fb%20c/day=__HIVE_DEFAULT_PARTITION__"


# Spans.


def test_rows_below_a_partitions_floor_are_left_out() -> None:
    table = pa.Table.from_batches([rows_of("a", 0, range(5)), rows_of("a", 1, range(5)), rows_of("b", 0, range(3))])
    spans = spans_of(table)
    kept = without_known(table, spans, {PartitionKey("a", 0): 3, PartitionKey("b", 0): 9})
    assert kept["text"].to_pylist() == ["a-0-3", "a-0-4", "a-1-0", "a-1-1", "a-1-2", "a-1-3", "a-1-4"]


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_a_row_of_no_topic_is_refused_where_rows_are_known_by_their_offsets(tmp_path: Path, name: str) -> None:
    rows = rows_of("a", 0, range(2))
    place = rows.schema.get_field_index(name)
    rows = rows.set_column(place, rows.schema.field(place), pa.nulls(2, rows.schema.field(place).type))
    with pytest.raises(ColumnError, match=f"a row's {name} is null"):
        written(a_plan(tmp_path), rows)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_spans_of_one_partition_are_joined() -> None:
    key = PartitionKey("a", 0)
    spans = spans_of(pa.Table.from_batches([rows_of("a", 0, range(5, 9))]))
    assert joined([*spans, *spans_of(pa.Table.from_batches([rows_of("a", 0, range(2, 3))]))]) == ((key, 2, 9),)


# Files.


def test_a_file_says_what_is_in_it(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    a, b = sorted(written(plan, rows_of("a", 0, range(3, 10)), rows_of("b", 1, range(2))), key=lambda file: file.values)
    assert (a.values, a.row_count, a.spans) == (("a",), 7, ((PartitionKey("a", 0), 3, 10),))
    assert json.loads(a.statistics) == {
        "numRecords": 7,
        "minValues": {"partition": 0, "offset": 3, "text": "a-0-3"},
        "maxValues": {"partition": 0, "offset": 9, "text": "a-0-9"},
        "nullCount": {"partition": 0, "offset": 0, "text": 0},
    }
    assert a.size_bytes == (tmp_path / a.path).stat().st_size
    assert b.row_count == 2


KINDS = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("weight", pa.float64()),
        ("name", pa.string()),
        ("is_paid", pa.bool_()),
        ("body", pa.binary()),
    ]
)


def file_of(path: Path, columns: pa.Schema, values: dict[str, list[object]]) -> dict[str, object]:
    parts = PartFiles(path, columns, partition_by=(), compression="zstd", keying=ByBatch(), rand=SystemRand())
    parts.add(pa.RecordBatch.from_pydict(values, columns))
    (file,) = parts.close()
    said: dict[str, object] = json.loads(file.statistics)
    return said


def test_least_and_greatest_values_are_kept_of_every_column(tmp_path: Path) -> None:
    long = "x" * 40
    said = file_of(
        tmp_path,
        KINDS,
        {
            "at": [1_000_001, None],
            "day": [0, None],
            "weight": [0.5, 1.0],
            "name": ["a", long],
            "is_paid": [True, False],
            "body": [b"1", b"2"],
        },
    )
    least = {"at": "1970-01-01T00:00:01.000001Z", "day": "1970-01-01", "weight": 0.5, "name": "a", "is_paid": False}
    assert said["minValues"] == least
    assert said["maxValues"] == least | {"weight": 1.0, "name": "x" * 32 + "\U0010ffff", "is_paid": True}
    assert said["nullCount"] == {"at": 1, "day": 1, "weight": 0, "name": 0, "is_paid": 0}


def test_a_bound_that_cannot_be_said_leaves_the_file_without_any(tmp_path: Path) -> None:
    columns = pa.schema([("weight", pa.float64()), ("number", pa.int64())])
    said = file_of(tmp_path, columns, {"weight": [float("inf"), 1.0], "number": [1, 2]})
    assert said == {"numRecords": 2, "nullCount": {"weight": 0, "number": 0}}


@pytest.mark.parametrize(
    ("column", "value"), [("text", "a-0-4"), ("offset", 4), ("topic", "a")], ids=["text", "number", "partition"]
)
def test_readers_of_delta_find_rows_by_any_column(tmp_path: Path, column: str, value: str | int) -> None:
    plan = a_plan(tmp_path)
    add_offsets(plan, written(plan, rows_of("a", 0, range(5)), rows_of("b", 0, range(4))))
    found = DeltaTable(tmp_path).to_pyarrow_table(filters=[(column, "=", value)])
    assert set(found[column].to_pylist()) == {value}


def test_a_day_for_every_message_does_not_open_a_file_for_every_message(tmp_path: Path) -> None:
    columns = pa.schema([("day", pa.date32()), ("number", pa.int64())])
    parts = PartFiles(tmp_path, columns, partition_by=("day",), compression="zstd", keying=ByBatch(), rand=SystemRand())
    parts.add(pa.RecordBatch.from_pydict({"day": list(range(200)), "number": list(range(200))}, columns))
    files = parts.close()
    assert sum(file.row_count for file in files) == len(files) == 200


# Commits.


def test_rows_come_once_however_often_they_are_added(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    assert add_offsets(plan, written(plan, rows_of("a", 0, range(5)))) == 5
    assert add_offsets(plan, written(plan, rows_of("a", 0, range(5)))) == 0
    assert add_offsets(plan, written(plan, rows_of("a", 0, range(8)))) == 3
    assert stored(tmp_path) == [f"a-0-{offset}" for offset in range(8)]


def test_two_writers_of_the_same_rows_add_them_once(tmp_path: Path) -> None:
    """Both wrote their files before either was added: what the table has changed since, and the driver looks again."""
    plan = a_plan(tmp_path)
    first = written(plan, rows_of("a", 0, range(6)), rows_of("b", 0, range(2)))
    second = written(plan, rows_of("a", 0, range(4, 9)), rows_of("c", 0, range(1)))
    assert add_offsets(plan, first) == 8
    assert add_offsets(plan, second) == 4
    assert stored(tmp_path) == [*(f"a-0-{offset}" for offset in range(9)), "b-0-0", "b-0-1", "c-0-0"]


def together(work: Callable[[int], object], *, threads: int = 4) -> None:
    """Do the same in several threads, begun at one moment."""
    barrier = threading.Barrier(threads)

    def begin(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(begin, range(threads)))


def test_writers_at_one_moment_add_every_row_once(tmp_path: Path) -> None:
    """Each looks at the table before the others have changed it: the log refuses all but one, and they look again."""
    plan = a_plan(tmp_path)
    for start in range(0, 30, 5):
        files = [written(plan, rows_of("a", 0, range(start, start + 10))) for _ in range(4)]
        together(lambda number, files=files: add_offsets(plan, files[number]))  # type: ignore[misc]
    assert stored(tmp_path) == sorted(f"a-0-{offset}" for offset in range(35))


def test_a_batch_that_several_bring_at_one_moment_is_added_once(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, keyed_by="batch")
    for batch in range(6):
        files = [written(plan, rows_of("a", 0, range(batch, batch + 1))) for _ in range(4)]
        together(lambda number, files=files, batch=batch: add_batch(plan, files[number], Mark("query", batch)))  # type: ignore[misc]
    assert stored(tmp_path) == [f"a-0-{batch}" for batch in range(6)]


def test_files_whose_rows_are_known_are_removed_and_those_in_the_table_stay(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    first = written(plan, rows_of("a", 0, range(5)))
    second = written(plan, rows_of("a", 0, range(5)))
    add_offsets(plan, first)
    add_offsets(plan, second)
    assert files_in(tmp_path) == {file.path for file in first}


def test_a_batch_comes_once_from_its_first_number_on(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, keyed_by="batch")
    for number in (0, 0, 1, 0, 1):
        add_batch(plan, written(plan, rows_of("a", 0, range(number, number + 1))), Mark("query", number))
    assert stored(tmp_path) == ["a-0-0", "a-0-1"]


def test_batches_of_two_queries_do_not_hide_each_other(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, keyed_by="batch")
    for query in ("one", "two"):
        add_batch(plan, written(plan, rows_of(query, 0, range(1))), Mark(query, 0))
    assert stored(tmp_path) == ["one-0-0", "two-0-0"]


def test_an_abort_removes_files_unless_the_table_has_them(tmp_path: Path) -> None:
    """Spark aborts after a commit that raised, and such a commit may have happened."""
    plan = a_plan(tmp_path)
    added, unknown = written(plan, rows_of("a", 0, range(5))), written(plan, rows_of("a", 0, range(5, 6)))
    add_offsets(plan, added)
    remove_unknown(plan, [*added, *unknown])
    assert files_in(tmp_path) == {file.path for file in added}


@pytest.mark.parametrize("name", ["with a space", "größe", "100%"])
def test_an_abort_finds_the_table_s_files_wherever_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / "link"):
        plan = a_plan(path)
        before = files_in(path)
        added = written(plan, rows_of("ä b", 0, range(len(before), len(before) + 1)))
        add_offsets(plan, added)
        remove_unknown(plan, added)
        assert files_in(path) == before | {file.path for file in added}


def test_a_topic_made_again_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    old, new = (_with_ids(a_plan(tmp_path), {"a": topic_id}) for topic_id in ("id-1", "id-2"))
    add_offsets(old, written(old, rows_of("a", 0, range(5))))
    assert add_offsets(new, written(new, rows_of("a", 0, range(3)))) == 3


def _with_ids(plan: Plan, topic_ids: dict[str, str]) -> Plan:
    return Plan(
        options=plan.options,
        columns=plan.columns,
        partition_by=plan.partition_by,
        topic_ids=topic_ids,
        overwrites=False,
    )


def test_a_table_that_lost_rows_or_gained_columns_meanwhile_takes_the_batch(tmp_path: Path) -> None:
    """Retention deletes days and an operator adds a column while a batch is under way."""
    plan = a_plan(tmp_path, mergeSchema="true")
    add_offsets(plan, written(plan, rows_of("a", 0, range(2))))
    files = written(plan, rows_of("a", 0, range(2, 4)))
    DeltaTable(tmp_path).delete("topic = 'a'")
    DeltaTable(tmp_path).alter.add_columns(Field("note", PrimitiveType("string")))
    add_offsets(plan, files)
    assert stored(tmp_path) == ["a-0-2", "a-0-3"]


def test_known_offsets_survive_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    add_offsets(plan, written(plan, rows_of("a", 0, range(5))))
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    assert add_offsets(plan, written(plan, rows_of("a", 0, range(5)))) == 0


# Refusals.


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="no option partitionsby; did you mean partitionBy"):
        parse_options({"path": "/x", "partitionsBy": "day"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no path"),
        ({"path": "s3://lake/orders"}, "not on a file system"),
        ({"path": "/lake%20of/orders"}, "/lake%20of/orders has %20 in it"),
        ({"path": "/x", "keyedBy": "row"}, "keyedBy is 'row'; it is one of batch, offset"),
        ({"path": "/x", "mergeSchema": "yes"}, "true or false"),
        ({"path": "/x", "compression": "zip"}, "it is one of zstd"),
        ({"path": "/x", "txnAppId": "a"}, "go together"),
        ({"path": "/x", "txnAppId": "a", "txnVersion": "b"}, "whole number of at least 0"),
        ({"path": "/x", "txnAppId": "a", "idempotencyKey": "b"}, "one or the other"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_options(options)


@pytest.mark.parametrize(
    ("columns", "partition_by", "sentence"),
    [
        (["a", "A"], (), "have one name"),
        (["a", "b"], ("c",), "names the column c"),
        (["a"], ("a",), "every column"),
        (["topic", "partition"], (), "offset is missing"),
        (["topic", "partition", "offset"], (), "the source's column partition, and here it is string; cast it back"),
    ],
)
def test_columns_that_no_table_could_take_are_refused(
    columns: list[str], partition_by: tuple[str, ...], sentence: str
) -> None:
    struct = StructType([StructField(name, StringType()) for name in columns])
    with pytest.raises(OptionError, match=sentence):
        check_columns(struct, partition_by=partition_by, is_keyed_by_offset="topic" in columns)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (A_TOPIC, {"partitionBy": "text"}, "is partitioned by topic"),
        (A_TOPIC, {"partitionBy": "text,topic"}, "is partitioned by topic"),
        (StructType(A_TOPIC.fields[:-1]), {}, "column text is missing here"),
        (StructType(A_TOPIC.fields[1:]), {"mergeSchema": "true"}, "partitioned by topic, which the rows do not have"),
        (StructType([*A_TOPIC.fields, StructField("note", StringType())]), {}, "column note is new here"),
    ],
)
def test_rows_are_held_against_the_table_before_anything_runs(
    tmp_path: Path, columns: StructType, options: dict[str, str], sentence: str
) -> None:
    plan = a_plan(tmp_path)
    add_offsets(plan, written(plan, rows_of("a", 0, range(5))))
    with pytest.raises((OptionError, SchemaDriftError), match=sentence):
        make_plan(parse_options({"path": str(tmp_path), **options}), columns, overwrites=False)


def test_what_is_partitioned_by_is_known_from_the_table(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    add_offsets(plan, written(plan, rows_of("a", 0, range(5))))
    assert make_plan(parse_options({"path": str(tmp_path)}), A_TOPIC, overwrites=False).partition_by == ("topic",)


def test_rows_of_topics_cannot_overwrite_and_need_no_other_key(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "keyedBy": "offset"}
    with pytest.raises(OptionError, match="cannot overwrite"):
        make_plan(parse_options(options), A_TOPIC, overwrites=True)
    with pytest.raises(OptionError, match="leave out the job's key"):
        make_plan(parse_options({**options, "idempotencyKey": "x"}), A_TOPIC, overwrites=False)


def test_a_type_that_delta_lacks_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="column span is interval year to month"):
        delta_schema(StructType([StructField("span", YearMonthIntervalType())]))


def test_every_difference_to_the_table_is_named() -> None:
    table = StructType([StructField("a", LongType()), StructField("b", StringType())])
    rows = StructType([StructField("a", LongType()), StructField("c", StringType())])
    with pytest.raises(SchemaDriftError, match="column c is new here and column b is missing here"):
        added_columns(table, rows, path="/x", merges=False)
    assert [field.name for field in added_columns(table, rows, path="/x", merges=True)] == ["c"]
    changed = StructType([StructField("a", StringType()), StructField("b", StringType())])
    with pytest.raises(SchemaDriftError, match="a is bigint there and string here"):
        added_columns(table, changed, path="/x", merges=True)
    enlarged = StructType([StructField("A", LongType()), StructField("b", StringType())])
    for merges in (False, True):
        with pytest.raises(SchemaDriftError, match="column A is a there, and Delta does not tell large letters"):
            added_columns(table, enlarged, path="/x", merges=merges)
