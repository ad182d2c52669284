"""Where the output of tasks waits until the driver publishes all of it.

Little of it travels inside the commit message. More goes to a file, one for each attempt of a task, in a directory that
driver and executors share:

    <root>/shared-<token>/                  made by a driver; an executor that does not see it has another disk
    <root>/job-<identity>/<name>.batches    the batches of one attempt, one after another

A job's directory goes when its batch is published or given up, with whatever failed attempts and killed drivers left in
it. What nobody came back to is removed by any later job after a day. Nothing is synced: if a machine goes down before
the publishing is done, so does the batch, and Spark runs it again.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.values import TopicPartition
from headrace.host.clock import SystemClock
from headrace.host.rand import SystemRand
from headrace.spark.errors import StagingError
from headrace.spark.query_batch import QueryBatch
from headrace.wire.crc import crc32c

# What a task may send with its commit message: all of them pass through the driver's memory together.
INLINE_BYTES_MAX = 256 * 1024

_SHARED, _JOB = "shared-", "job-"
_ABANDONED_MS = 24 * 60 * 60 * 1000


class Piece(NamedTuple):
    """One record batch of the output of a task."""

    at: TopicPartition
    position: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver: its batches in order, and where their bytes are."""

    pieces: tuple[Piece, ...]
    data: bytes  # all bytes, where there is no file
    file: str | None
    batch: QueryBatch | None  # None outside of streaming queries

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    def read(self, piece: Piece) -> bytearray:
        """The bytes of a batch, in a buffer of its own."""
        if self.file is None:
            return bytearray(memoryview(self.data)[piece.position : piece.position + piece.size])
        batch = bytearray(piece.size)
        try:
            with Path(self.file).open("rb", buffering=0) as file:
                file.seek(piece.position)
                count = file.readinto(batch)
        except OSError as error:
            raise StagingError(f"{self.file}, which a task has written, cannot be read: {error.strerror}") from error
        if count != piece.size or crc32c(batch) != piece.crc:
            raise StagingError(f"{self.file} has not what a task wrote at byte {piece.position}; run the batch again")
        return batch


@dataclass(frozen=True, slots=True)
class StagingPlace:
    """The shared directory, as the driver found it; goes to the tasks."""

    root: Path
    token: str

    def check_shared(self) -> None:
        if not (self.root / (_SHARED + self.token)).exists():
            raise StagingError(
                f"{self.root} on this executor is not the driver's: set the option stagingDirectory to a directory "
                "that the driver and all executors share"
            )

    def job(self, identity: str) -> Path:
        return self.root / (_JOB + hashlib.sha256(identity.encode()).hexdigest()[:32])

    def remove_job(self, identity: str) -> None:
        shutil.rmtree(self.job(identity), ignore_errors=True)


def prepare_staging(root: Path | None) -> StagingPlace:
    """On the driver: the directory is made, and what was abandoned in it goes."""
    try:
        root = _temporary_root() if root is None else root
        root.mkdir(parents=True, exist_ok=True)
        found = sorted(path.name for path in root.glob(_SHARED + "*"))
        token = found[0].removeprefix(_SHARED) if found else SystemRand().bytes(8).hex()
        (root / (_SHARED + token)).mkdir(exist_ok=True)
        _remove_abandoned(root)
    except OSError as error:
        raise StagingError(f"{root}, where tasks leave their output, cannot be used: {error.strerror}") from error
    return StagingPlace(root, token)


def _temporary_root() -> Path:
    """Where everybody may make directories, one that nobody else has made, or may look into."""
    root = Path(tempfile.gettempdir()) / f"headrace-staging-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise StagingError(f"{root} belongs to somebody else; set the option stagingDirectory to another directory")
    return root


def _remove_abandoned(root: Path) -> None:
    newest_ms = SystemClock().wall_ms() - _ABANDONED_MS
    for job in root.glob(_JOB + "*"):
        with suppress(FileNotFoundError):  # whoever it belongs to is done with it
            times = [path.stat().st_mtime for path in (job, *job.iterdir())]
            if max(times) * 1000 < newest_ms:
                shutil.rmtree(job, ignore_errors=True)


class Stage:
    """The output of one attempt of a task while it grows."""

    def __init__(self, place: StagingPlace, identity: str) -> None:
        self._place = place
        self._identity = identity
        self._pieces: list[Piece] = []
        self._data = bytearray()
        self._size = 0
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def add(self, at: TopicPartition, batch: bytes | bytearray) -> None:
        self._pieces.append(Piece(at, self._size, len(batch), crc32c(batch)))
        self._size += len(batch)
        if self._size > INLINE_BYTES_MAX and self._file is None:
            self._file = self._open()
            self._write(self._data)
            self._data = bytearray()
        if self._file is None:
            self._data += batch
        else:
            self._write(batch)

    def finish(self, *, batch: QueryBatch | None) -> Staged:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise self._failed(error) from error
        return Staged(tuple(self._pieces), bytes(self._data), None if self._path is None else str(self._path), batch)

    def discard(self) -> None:
        """The attempt failed: nobody will ask for its output."""
        if self._file is not None and self._path is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._path.unlink()

    def _open(self) -> BinaryIO:
        self._place.check_shared()
        directory = self._place.job(self._identity)
        # The name is new for every attempt: one that Spark has given up may still be writing.
        self._path = directory / f"{SystemRand().bytes(12).hex()}.batches"
        try:
            directory.mkdir(exist_ok=True)
            return self._path.open("xb")
        except OSError as error:
            raise self._failed(error) from error

    def _write(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StagingError:
        return StagingError(f"{self._path}, where this task leaves its output, cannot be written: {error.strerror}")


def total_bytes(staged: Sequence[Staged]) -> int:
    return sum(one.size for one in staged)
