"""The upkeep of a table: it joins and removes files of this sink, and nothing else in the directory."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructField, StructType
from tests.spark.lake_rows import A_TOPIC, a_plan, files_in, rows_of, stored, written

from headrace.spark.errors import OptionError
from headrace.spark.lake import compaction
from headrace.spark.lake.commit import add_offsets
from headrace.spark.lake.compaction import compact
from headrace.spark.lake.data_sink import make_plan
from headrace.spark.lake.maintenance import vacuum
from headrace.spark.lake.part_file import is_own
from headrace.spark.lake.sink_option import parse_options
from headrace.spark.lake.table import check_place, file_paths
from headrace.spark.pipeline.archive import ArchiveOptions
from headrace.spark.pipeline.audit import AuditOptions
from headrace.spark.pipeline.rollup import RollupOptions

NOW_MS = 1_800_000_000_000
OWN = "headrace-c3aed1de-b18c-4341-98b8-03c8d30bf424.zstd.parquet"


def add(path: Path, *ranges: range, topic: str = "a") -> None:
    """One batch, and so one file, for each range of offsets."""
    plan = a_plan(path)
    for offsets in ranges:
        add_offsets(plan, written(plan, rows_of(topic, 0, offsets)))


def old_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    os.utime(path, (0, 0))
    return path


# Where a table may be.


@pytest.mark.parametrize("name", ["notes.txt", "2026/report.csv", f"sub/{OWN}", "part-00000.parquet"])
def test_a_directory_of_other_files_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    mine = old_file(tmp_path / name)
    options = parse_options({"path": str(tmp_path), "partitionBy": "topic"})
    with pytest.raises(OptionError, match=f"is not a Delta table, and {name} is in it"):
        make_plan(options, A_TOPIC, overwrites=False)
    plan = a_plan(tmp_path)
    with pytest.raises(OptionError, match="is not a Delta table"):
        add_offsets(plan, written(plan, rows_of("a", 0, range(1))))
    assert mine.read_text() == "mine"
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize(
    "options",
    [
        lambda path: ArchiveOptions(server="127.0.0.1:1", table=path, topics=("a",)),
        lambda path: RollupOptions(server="127.0.0.1:1", table=path),
        lambda path: AuditOptions(server="127.0.0.1:1", topics=("a",), findings=path),
    ],
    ids=["archive", "rollup", "audit"],
)
def test_every_pipeline_refuses_it_before_a_session_is_started(tmp_path: Path, options: object) -> None:
    old_file(tmp_path / "notes.txt")
    with pytest.raises(OptionError, match=r"notes\.txt is in it"):
        options(str(tmp_path))  # type: ignore[operator]


def test_what_a_killed_first_batch_left_and_hidden_directories_are_no_other_files(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    old_file(tmp_path / "_checkpoint" / "metadata")
    (left,) = written(plan, rows_of("a", 0, range(3)))
    check_place(tmp_path, partition_by=("topic",))
    add(tmp_path, range(3))
    assert stored(tmp_path) == ["a-0-0", "a-0-1", "a-0-2"]
    assert vacuum(tmp_path, retention_hours=0) == 1
    assert left.path not in files_in(tmp_path)


def test_an_archive_refuses_a_table_that_is_none_of_its_own(tmp_path: Path) -> None:
    """Its upkeep would drop rows by their day, whatever that is there."""
    write_deltalake(tmp_path, pa.table({"day": ["2020-01-01"], "text": ["mine"]}))
    with pytest.raises(OptionError, match="is a Delta table, but not one of an archive"):
        ArchiveOptions(server="127.0.0.1:1", table=str(tmp_path), topics=("a",), keep_days=1)


# Vacuum.


def test_a_vacuum_removes_files_of_the_sink_and_no_others(tmp_path: Path) -> None:
    add(tmp_path, range(3), range(3, 6))
    nested = tmp_path / "nested"
    add(nested, range(2))
    others = [
        old_file(tmp_path / name)
        for name in ("notes.txt", "2020/photo.jpg", "topic=a/data.parquet", "topic=a/part-00000-x-c000.zstd.parquet")
    ]
    left = old_file(tmp_path / "topic=a" / OWN)
    for file in nested.rglob("*.parquet"):
        os.utime(file, (0, 0))
    compact(tmp_path, now_ms=0)
    assert vacuum(tmp_path) == 3
    assert not left.exists()
    assert [file.read_text() for file in others] == ["mine"] * len(others)
    assert stored(tmp_path) == [f"a-0-{offset}" for offset in range(6)]
    assert stored(nested) == ["a-0-0", "a-0-1"]
    assert vacuum(tmp_path) == 0


def test_a_vacuum_follows_no_symbolic_links(tmp_path: Path) -> None:
    table, other = tmp_path / "table", tmp_path / "other"
    add(table, range(3))
    add(other, range(3), range(3, 6))
    (table / "topic=b").symlink_to(other / "topic=a")
    mine = old_file(tmp_path / OWN)
    (table / "topic=a" / OWN).symlink_to(mine)
    for file in other.rglob("*.parquet"):
        os.utime(file, (0, 0))
    before = files_in(other)
    assert vacuum(table, retention_hours=0) == 0
    assert (files_in(other), mine.exists()) == (before, True)
    (tmp_path / "link").symlink_to(other)
    left = old_file(other / "topic=a" / OWN)
    assert vacuum(tmp_path / "link") == 1
    assert not left.exists(), "the table itself may be reached by a link"


def test_a_vacuum_keeps_what_was_replaced_lately(tmp_path: Path) -> None:
    """Its age counts from when it was replaced: until then readers were sent to it."""
    add(tmp_path, range(3), range(3, 6))
    for file in tmp_path.rglob("*.parquet"):
        os.utime(file, (0, 0))
    compact(tmp_path, now_ms=int(os.path.getmtime(tmp_path / "_delta_log") * 1000))
    assert vacuum(tmp_path) == 0
    assert vacuum(tmp_path, retention_hours=0) == 2


@pytest.mark.parametrize(
    ("path", "owns"),
    [
        (f"topic=a/day=2026-01-01/{OWN}", True),
        (f"topic=a%2Fb/day=__HIVE_DEFAULT_PARTITION__/{OWN}", True),
        (OWN, False),
        (f"topic=a/{OWN}", False),
        (f"day=2026-01-01/topic=a/{OWN}", False),
        (f"topic=a/day=2026-01-01/more/{OWN}", False),
        ("topic=a/day=2026-01-01/headrace-notes.parquet", False),
        ("topic=a/day=2026-01-01/part-c3aed1de-b18c-4341-98b8-03c8d30bf424.zstd.parquet", False),
    ],
)
def test_a_file_of_the_sink_is_known_by_its_place_and_name(path: str, owns: bool) -> None:
    assert is_own(path, ["topic", "day"]) is owns


# Compaction.


def test_small_files_of_a_partition_are_joined_in_order(tmp_path: Path) -> None:
    add(tmp_path, *(range(start, start + 10) for start in range(0, 50, 10)))
    add(tmp_path, range(10), topic="ä/b")
    assert compact(tmp_path, now_ms=NOW_MS) == (5, 1)
    table = DeltaTable(tmp_path)
    assert len(table.file_uris()) == 2
    assert stored(tmp_path) == sorted([f"a-0-{n}" for n in range(50)] + [f"ä/b-0-{n}" for n in range(10)])
    (joined,) = [file for file in table.file_uris() if "topic=a" in file]
    assert pq.ParquetFile(joined).read()["offset"].to_pylist() == list(range(50))
    (action,) = [one for one in pa.table(table.get_add_actions(flatten=True)).to_pylist() if one["num_records"] == 50]
    assert (action["min.offset"], action["max.offset"], action["partition.topic"]) == (0, 49, "a")
    assert compact(tmp_path, now_ms=NOW_MS) == (0, 0)
    add(tmp_path, range(60))
    assert len(stored(tmp_path)) == 70, "what the table knew is still known"


def test_a_joined_file_has_row_groups_within_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACTED_BYTES", 60_000)
    add(tmp_path, *(range(start, start + 1_000) for start in range(0, 30_000, 1_000)))
    taken, made = compact(tmp_path, now_ms=NOW_MS, memory_bytes=400_000)
    files = [Path(file) for file in DeltaTable(tmp_path).file_uris()]
    assert (taken, made) == (30, len(files))
    assert len(files) > 1
    assert max(file.stat().st_size for file in files) < 90_000
    groups = [pq.ParquetFile(file).metadata.row_group(0) for file in files]
    assert max(group.num_rows for group in groups) < 3_000
    assert len(stored(tmp_path)) == 30_000


def test_columns_that_were_added_later_are_null_in_the_rows_before(tmp_path: Path) -> None:
    add(tmp_path, range(2))
    grown = StructType([*A_TOPIC, StructField("size", LongType())])
    options = parse_options({"path": str(tmp_path), "keyedBy": "offset", "partitionBy": "topic", "mergeSchema": "true"})
    plan = make_plan(options, grown, overwrites=False)
    rows = rows_of("a", 0, range(2, 4))
    add_offsets(plan, written(plan, rows.append_column("size", pa.array([7, 8], pa.int64()))))
    assert compact(tmp_path, now_ms=NOW_MS) == (2, 1)
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset")
    assert found["size"].to_pylist() == [None, None, 7, 8]


def test_files_of_other_writers_are_not_joined(tmp_path: Path) -> None:
    add(tmp_path, range(2), range(2, 4))
    for offset in (4, 5):
        write_deltalake(
            tmp_path, pa.table(rows_of("a", 0, range(offset, offset + 1)).to_pydict(), _arrow()), mode="append"
        )
    assert compact(tmp_path, now_ms=NOW_MS) == (2, 1)
    assert stored(tmp_path) == [f"a-0-{n}" for n in range(6)]
    assert len(DeltaTable(tmp_path).file_uris()) == 3


def _arrow() -> pa.Schema:
    return rows_of("a", 0, range(1)).schema


def test_two_compactions_at_one_moment_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library lets both replace the same files: the second is refused here, before and at the commit."""
    add(tmp_path, range(5), range(5, 9))
    join = compaction._join

    def join_after_another(path: Path, *rest: object) -> object:
        monkeypatch.setattr(compaction, "_join", join)
        joined = join(path, *rest)  # type: ignore[arg-type]
        assert compact(path, now_ms=NOW_MS) == (2, 1)
        return joined

    monkeypatch.setattr(compaction, "_join", join_after_another)
    assert compact(tmp_path, now_ms=NOW_MS) == (0, 0)
    assert stored(tmp_path) == [f"a-0-{n}" for n in range(9)]
    assert len(files_in(tmp_path)) == 3, "what was made for nothing is removed"


def test_a_compaction_that_looked_before_another_committed_is_refused_by_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, range(5), range(5, 9))
    look = file_paths
    looks = 0

    def look_and_be_late(table: DeltaTable) -> list[str]:
        nonlocal looks
        looks += 1
        found = look(table)
        if looks == 2:  # just before the commit
            monkeypatch.setattr(compaction, "file_paths", look)
            assert compact(tmp_path, now_ms=NOW_MS) == (2, 1)
        return found

    monkeypatch.setattr(compaction, "file_paths", look_and_be_late)
    assert compact(tmp_path, now_ms=NOW_MS) == (0, 0)
    assert stored(tmp_path) == [f"a-0-{n}" for n in range(9)]


def test_rows_that_come_meanwhile_stay_and_rows_that_go_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, range(5), range(5, 9))
    join = compaction._join

    def join_and_add(path: Path, *rest: object) -> object:
        joined = join(path, *rest)  # type: ignore[arg-type]
        add(path, range(9, 11))
        return joined

    monkeypatch.setattr(compaction, "_join", join_and_add)
    assert compact(tmp_path, now_ms=NOW_MS) == (2, 1)
    assert stored(tmp_path) == sorted(f"a-0-{n}" for n in range(11))

    def join_and_delete(path: Path, *rest: object) -> object:
        joined = join(path, *rest)  # type: ignore[arg-type]
        DeltaTable(path).delete("topic = 'a'")
        return joined

    monkeypatch.setattr(compaction, "_join", join_and_delete)
    assert compact(tmp_path, now_ms=NOW_MS) == (0, 0)
    assert stored(tmp_path) == []
