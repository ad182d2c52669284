"""Opening a partition from its files. Blocks.

After a clean stop the checkpoint says where the log ends, and no message is read. Otherwise everything above the
recovery point is read again: the first batch there that does not check is where the crash tore the log, and it is cut
there. Below the recovery point nothing is cut: what is wrong there was once right and synced, so it is damage, which is
reported with file, position, expected and found (failure rows 16 and 17). So is a log that ends before a record of the
journal begins: the journal takes an append only once all before it is durable, so the missing part was not torn off.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.host.disk import Disk, File, parent_directory, read_file
from headrace.log import checkpoint as checkpoint_file
from headrace.log import doubt
from headrace.log.checkpoint import Checkpoint
from headrace.log.epochs import EpochTable
from headrace.log.files import Files
from headrace.log.index import SparseIndex
from headrace.log.journal import LOST_SUFFIX, JournalRecord
from headrace.log.listing import find_segments
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIMEINDEX_SUFFIX, Segment, check_crc, segment_name
from headrace.log.trash import Trash
from headrace.log.walk import Places, headers, whole_header
from headrace.model.batch import HEADER_SIZE, read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Epoch, Offset, PartitionId
from headrace.model.topic import TopicConfig

FOLDS_DIRECTORY = "folds"

_CHUNK_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


class Opening(NamedTuple):
    """What opening any partition of this node takes."""

    disk: Disk
    files: Files
    trash: Trash
    shutdown_id: str  # of the node's last clean stop; empty after a crash
    now_ms: int
    # What the journal holds for each partition, in order. Empty where an operator has given up a part of the journal.
    journal: Mapping[PartitionId, Sequence[JournalRecord]] = {}


class Scanned(NamedTuple):
    """How far a segment is whole."""

    position: int
    next_offset: Offset
    problem: CorruptLogError | None


def create_log(id: PartitionId, directory: str, config: TopicConfig, opening: Opening) -> PartitionLog:
    """Make a new, empty partition whose name and first file are durable."""
    disk = opening.disk
    disk.make_directory(f"{directory}/{FOLDS_DIRECTORY}")
    segment = Segment(directory, Offset(0), index=SparseIndex(config.index_interval_bytes), created_ms=opening.now_ms)
    disk.open(segment.path, create=True).close()
    disk.sync_directory(directory)
    disk.sync_directory(parent_directory(directory))
    return _assemble(id, directory, config, opening, [segment], EpochTable(), Offset(0))


def open_log(
    id: PartitionId, directory: str, config: TopicConfig, opening: Opening, *, was_made: bool = False
) -> PartitionLog:
    """Open a partition that is there. One that a crash left without files is made whole, unless it once was so."""
    point, trusted = _read_checkpoint(opening.disk, directory)
    if was_made:
        _check_checkpoint_is_there(opening.disk, directory)
    segments = find_segments(opening.disk, directory, opening.trash, point, now_ms=opening.now_ms)
    if not segments:
        if was_made or point.recovery_point > 0:
            raise CorruptLogError(
                file=directory, position=0, expected="segment files", found="none", what="partition directory"
            )
        return create_log(id, directory, config, opening)
    # Lost snapshots are made anew, in a folder that may be lost with them.
    opening.disk.make_directory(f"{directory}/{FOLDS_DIRECTORY}")
    last = segments[-1]
    is_clean = (
        point.shutdown_id != ""
        and point.shutdown_id == opening.shutdown_id
        and last.base_offset == point.recovery_segment
        and last.size == point.recovery_position
    )
    epochs = _read_epochs(segments, point, opening)
    log_start = Offset(max(point.log_start, segments[0].base_offset))
    if is_clean:
        last.next_offset = Offset(point.recovery_point)
        partition_log = _assemble(id, directory, config, opening, segments, epochs, log_start)
        last.index = load_index(opening.disk, last, config.index_interval_bytes, known=point)
    else:
        partition_log = _recover(id, directory, config, opening, segments, epochs, log_start, point, trusted)
    partition_log.saved = point
    partition_log.recovery_point = Offset(point.recovery_point)
    partition_log.recovery_base = Offset(point.recovery_segment)
    partition_log.journal_sequence = point.journal_sequence
    partition_log.snapshot_offset = Offset(point.snapshot_offset)
    return partition_log


def _assemble(
    id: PartitionId,
    directory: str,
    config: TopicConfig,
    opening: Opening,
    segments: list[Segment],
    epochs: EpochTable,
    log_start: Offset,
) -> PartitionLog:
    return PartitionLog(
        id=id,
        directory=directory,
        config=config,
        disk=opening.disk,
        files=opening.files,
        segments=segments,
        epochs=epochs,
        start_offset=log_start,
        load_index=lambda segment: load_index(opening.disk, segment, config.index_interval_bytes),
    )


def _read_checkpoint(disk: Disk, directory: str) -> tuple[Checkpoint, bool]:
    """The checkpoint, and whether it can be trusted. A new partition has none, which is as good as an empty one."""
    path = f"{directory}/{checkpoint_file.NAME}"
    if not disk.exists(path):
        return Checkpoint(), True
    try:
        return checkpoint_file.decode(read_file(disk, path), path), True
    except CorruptLogError as error:
        log.warning("checkpoint is damaged; reading the whole partition", extra={"file": path, "error": str(error)})
        return Checkpoint(), False


def _check_checkpoint_is_there(disk: Disk, directory: str) -> None:
    """Nothing goes from a log before its first checkpoint, so one that has none begins at offset 0."""
    path = f"{directory}/{checkpoint_file.NAME}"
    if disk.exists(path):
        return
    bases = sorted(name for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX))
    if bases and not bases[0].startswith(segment_name(0)):
        raise CorruptLogError(
            file=path,
            position=0,
            expected=f"a checkpoint, since the oldest segment is {bases[0]}",
            found="no file",
            what="partition",
            advice="restore it from a backup, or put an empty file in its place to open the partition with the "
            "segments that are there",
        )


def _recover(
    id: PartitionId,
    directory: str,
    config: TopicConfig,
    opening: Opening,
    segments: list[Segment],
    epochs: EpochTable,
    log_start: Offset,
    point: Checkpoint,
    trusted: bool,
) -> PartitionLog:
    at = next((i for i, s in enumerate(segments) if s.base_offset == point.recovery_segment), None)
    if at is None and point.recovery_point == 0:
        at = 0  # never checkpointed, and what was older is gone by retention
    if at is None or segments[at].size < point.recovery_position:
        raise CorruptLogError(
            file=f"{directory}/{segment_name(point.recovery_segment)}{LOG_SUFFIX}",
            position=point.recovery_position,
            expected="bytes that were synced",
            found="none" if at is None else f"a file of {segments[at].size} bytes",
            what="content",
        )
    first = segments[at]
    is_doubtful = doubt.has_mark(opening.disk, directory)
    offset = Offset(max(point.recovery_point, first.first_offset))
    position = point.recovery_position
    problem: CorruptLogError | None = None
    for segment in segments[at:]:
        if segment.base_offset != offset and segment is not first:
            break
        known = point if segment is first else Checkpoint()
        segment.index = load_index(opening.disk, segment, config.index_interval_bytes, known=known)
        file = opening.disk.open(segment.path)
        try:
            scanned = scan(file, segment, position, offset, epochs)
            if is_doubtful:
                doubt.write_again(file, position, scanned.position)
            # What was read may be in the page cache only, for all that is known.
            file.fdatasync()
        except OSError:
            doubt.leave_mark(opening.disk, directory)
            raise
        finally:
            file.close()
        segment.truncate_to(scanned.position, scanned.next_offset)
        offset, position, problem, at = scanned.next_offset, 0, scanned.problem, segments.index(segment)
        if problem is not None:
            break
    whole, torn = segments[: at + 1], segments[at + 1 :]
    last = whole[-1]
    # What was cleaned lay below a recovery point, so what is wrong there is damage whatever the checkpoint says.
    if problem is not None and (not trusted or last.size < last.gap_bytes):
        raise problem
    if any(segment.base_offset in (point.segments or ()) for segment in torn):
        raise problem or _short(last, torn[0])
    _check_journal_goes_on(opening, id, last, offset, point)
    was_torn = problem is not None or bool(torn)
    if was_torn:
        log.warning(
            "cut a torn tail",
            extra={"file": last.path, "position": last.size, "found": str(problem), "later": len(torn)},
        )
        # From the last one back, so that a crash in between leaves no hole that looks like a log.
        for segment in reversed(torn):
            opening.trash.take_segment(segment.stem)
    # Also where nothing is torn: blocks may be reserved behind the end.
    cut_file(opening.disk, last.path, last.size)
    if is_doubtful:
        doubt.take_mark(opening.disk, directory)
    # The same holds for the segments' names.
    opening.disk.sync_directory(directory)
    partition_log = _assemble(id, directory, config, opening, whole, epochs, min(log_start, offset))
    partition_log.was_torn = was_torn
    partition_log.was_clean = False
    partition_log.bytes_since_checkpoint = partition_log.size_bytes if point.recovery_point == 0 else 1
    return partition_log


def _check_journal_goes_on(opening: Opening, id: PartitionId, last: Segment, end: Offset, point: Checkpoint) -> None:
    """Raise where the journal holds batches behind a gap. Nothing of the segment was cut yet, so it can be mended."""
    given_up = last.path + LOST_SUFFIX
    for record in opening.journal.get(id, ()):
        position = 0
        while record.sequence > point.journal_sequence and position < len(record.batches):
            header = read_header(record.batches, position)
            if header.base_offset > end:
                if opening.disk.exists(given_up):
                    # Given up once. The next loss is reported again.
                    opening.disk.rename(given_up, f"{given_up}-{end}")
                    return
                raise CorruptLogError(
                    file=last.path,
                    position=last.size,
                    expected=f"batches up to offset {header.base_offset}, from where the journal has them",
                    found=f"the last whole one at offset {end}",
                    what="content",
                    advice="restore the file from a backup or a replica and restart the node, or make an empty file "
                    f"{given_up} to open the partition without what is missing and all that was appended behind it",
                )
            end = max(end, Offset(header.base_offset + header.last_offset_delta + 1))
            position += header.size


def _short(segment: Segment, later: Segment) -> CorruptLogError:
    """A segment ends before the next one begins, which was made when all of it was synced."""
    return CorruptLogError(
        file=segment.path,
        position=segment.size,
        expected=f"batches up to offset {later.base_offset}",
        found=f"the end of the file, at offset {segment.next_offset}",
        what="content",
    )


def scan(file: File, segment: Segment, position: int, offset: Offset, epochs: EpochTable) -> Scanned:
    """Check batch after batch, and note each in the index and the epochs, up to the first that is not whole."""
    size = segment.size
    assert segment.index is not None
    chunk = b""
    chunk_position = position
    places = Places(segment, position)
    while position < size:
        at = position - chunk_position
        try:
            if at + HEADER_SIZE > len(chunk):
                chunk = file.pread(position, _CHUNK_BYTES)
                chunk_position, at = position, 0
            header = whole_header(chunk, at, segment, position, offset)
            if at + header.size > len(chunk):
                chunk = file.pread(position, max(header.size, _CHUNK_BYTES))
                chunk_position, at = position, 0
            check_crc(header, memoryview(chunk)[at:], path=segment.path, position=position)
            if header.leader_epoch < epochs.latest:
                raise CorruptLogError(
                    file=segment.path,
                    position=position + 12,
                    expected=f"{epochs.latest} or more",
                    found=header.leader_epoch,
                    what="leader epoch",
                )
            places.pass_by(chunk, at, position + header.size)
        except CorruptLogError as error:
            return Scanned(position, offset, error)
        epochs.assign(Epoch(header.leader_epoch), Offset(header.base_offset))
        segment.index.add(Offset(header.base_offset), position, header.max_timestamp_ms)
        segment.mark_verified(position, position + header.size)
        position += header.size
        offset = segment.offset_after(header, position)
    return Scanned(position, offset, None)


def load_index(disk: Disk, segment: Segment, interval_bytes: int, *, known: Checkpoint | None = None) -> SparseIndex:
    """The index of a segment, from its files, or from the log's headers where those do not check or say less.

    `known` says how far the segment that will be appended to was synced; a closed one is whole.
    """
    end = segment.size if known is None else known.recovery_position
    if not segment.is_placed:
        # Its offsets do not prove themselves, so all of its headers are looked at once, whatever the index says.
        index = SparseIndex(interval_bytes)
        _walk_into(disk, segment, index, end)
        return index
    index = SparseIndex.load(
        _read_if_there(disk, segment.stem + INDEX_SUFFIX),
        _read_if_there(disk, segment.stem + TIMEINDEX_SUFFIX),
        interval_bytes=interval_bytes,
        position_max=end,
    )
    if index.is_sealed and known is None and index.sealed_at == segment.next_offset:
        return index
    index.is_sealed = False
    if known is not None and known.index_count == len(index):
        index.max_timestamp_ms = known.max_timestamp_ms
    else:
        _walk_into(disk, segment, index, end)
    return index


def _walk_into(disk: Disk, segment: Segment, index: SparseIndex, end: int) -> None:
    """Add what is missing after the last entry, from the headers."""
    last = index.last
    position, offset = (last.position, last.offset) if last else (0, segment.first_offset)
    file = disk.open(segment.path)
    try:
        for found, at in headers(file, segment, position, end, offset):
            index.add(Offset(found.base_offset), at, found.max_timestamp_ms)
    finally:
        file.close()


def cut_file(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path)
    try:
        file.truncate(size)
        file.fdatasync()
    finally:
        file.close()


def _read_if_there(disk: Disk, path: str) -> bytes:
    return read_file(disk, path) if disk.exists(path) else b""


def _read_epochs(segments: list[Segment], point: Checkpoint, opening: Opening) -> EpochTable:
    """The epoch table up to the recovery point: the checkpoint's, or the headers' where that has none."""
    recovery_point = Offset(point.recovery_point)
    if point.epochs is not None:
        return EpochTable([(Epoch(epoch), Offset(start)) for epoch, start in point.epochs])
    epochs = EpochTable()
    for segment in segments:
        end = segment.size
        if segment.base_offset == point.recovery_segment:
            end = point.recovery_position
        elif segment.base_offset > recovery_point:
            break
        file = opening.disk.open(segment.path)
        try:
            for header, _ in headers(file, segment, 0, end, segment.first_offset):
                epochs.assign(Epoch(header.leader_epoch), Offset(header.base_offset))
        finally:
            file.close()
    epochs.truncate_to(recovery_point)
    return epochs
