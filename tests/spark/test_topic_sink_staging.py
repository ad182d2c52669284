"""Where the output of tasks waits: in the message or in a file, whole or not at all, and not for ever."""

import os
import time
from pathlib import Path

import pytest

from headrace.client.values import TopicPartition
from headrace.spark.errors import StagingError
from headrace.spark.query_batch import QueryBatch
from headrace.spark.sink.staging import INLINE_BYTES_MAX, Stage, Staged, StagingPlace, prepare_staging

AT = TopicPartition("orders", 0)


@pytest.fixture
def place(tmp_path: Path) -> StagingPlace:
    return prepare_staging(tmp_path / "staging")


def fill(place: StagingPlace, *sizes: int) -> Staged:
    stage = Stage(place, "query")
    for number, size in enumerate(sizes):
        stage.add(TopicPartition("orders", number), bytes([number]) * size)
    return stage.finish(batch=QueryBatch("q", 0))


def test_little_travels_with_the_message_and_much_in_a_file(place: StagingPlace) -> None:
    little = fill(place, 10, 0, INLINE_BYTES_MAX - 10)
    assert little.file is None
    assert not place.job("query").exists()
    much = fill(place, 10, INLINE_BYTES_MAX, 7)
    assert much.data == b""
    assert much.file is not None
    for staged in (little, much):
        for number, piece in enumerate(staged.pieces):
            assert piece.at.partition == number
            assert staged.read(piece) == bytearray([number]) * piece.size
    assert much.size == INLINE_BYTES_MAX + 17
    place.remove_job("query")
    assert not Path(much.file).exists()
    with pytest.raises(StagingError, match="which a task has written, cannot be read: No such file"):
        much.read(much.pieces[0])


def test_two_attempts_of_a_task_do_not_write_to_one_file(place: StagingPlace) -> None:
    assert fill(place, INLINE_BYTES_MAX + 1).file != fill(place, INLINE_BYTES_MAX + 1).file


def test_a_damaged_file_is_not_published(place: StagingPlace) -> None:
    staged = fill(place, INLINE_BYTES_MAX, 100)
    assert staged.file is not None
    path = Path(staged.file)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    staged.read(staged.pieces[0])
    with pytest.raises(StagingError, match=f"has not what a task wrote at byte {INLINE_BYTES_MAX}"):
        staged.read(staged.pieces[1])


def test_an_attempt_that_fails_leaves_no_file(place: StagingPlace) -> None:
    stage = Stage(place, "query")
    stage.add(AT, b"x" * (INLINE_BYTES_MAX + 1))
    assert list(place.job("query").iterdir()) != []
    stage.discard()
    assert list(place.job("query").iterdir()) == []


def test_an_executor_with_another_disk_says_what_to_do(place: StagingPlace, tmp_path: Path) -> None:
    elsewhere = StagingPlace(tmp_path / "elsewhere", place.token)
    with pytest.raises(StagingError, match="set the option stagingDirectory to a directory that the driver and all"):
        fill(elsewhere, INLINE_BYTES_MAX + 1)
    # One that has its own directory of that name has it no better.
    prepare_staging(tmp_path / "elsewhere")
    with pytest.raises(StagingError, match="is not the driver's"):
        fill(elsewhere, INLINE_BYTES_MAX + 1)
    assert prepare_staging(place.root) == place, "every driver of a machine finds the same"


def test_what_nobody_came_back_to_goes_after_a_day(place: StagingPlace) -> None:
    old, young = Stage(place, "old"), Stage(place, "young")
    for stage in (old, young):
        stage.add(AT, b"x" * (INLINE_BYTES_MAX + 1))
        stage.finish(batch=None)
    long_ago = time.time() - 25 * 3600
    for path in (*place.job("old").iterdir(), place.job("old")):
        os.utime(path, (long_ago, long_ago))
    prepare_staging(place.root)
    assert not place.job("old").exists()
    assert place.job("young").exists()


def test_a_directory_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StagingError, match="where tasks leave their output, cannot be used: Not a directory"):
        prepare_staging(tmp_path / "file" / "staging")
