"""What is done to a log behind its users' backs: checkpoints, retention, truncation.

Cleaning is too, and has files of its own: `clean.py`, `compact.py`.

Each has a part that decides and changes memory, on the event loop, and a part that blocks and touches only files that
nobody else writes, in a thread. The order in which things become durable:

    segments, then indexes and snapshots, then the checkpoint that vouches for all of them,
    and only then may a file go that the last checkpoint still spoke of.

A segment's file goes only after a checkpoint is durable that no longer lists it. A start can therefore tell a segment
that retention took from one that was lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.host.disk import Disk, parent_directory, write_atomically, write_fully
from headrace.log import checkpoint as checkpoint_file
from headrace.log import cleaned as cleaned_file
from headrace.log import snapshots
from headrace.log.checkpoint import Checkpoint
from headrace.log.claim import unclaimed
from headrace.log.compacted import lower_compacted
from headrace.log.config import LogConfig
from headrace.log.index import IndexBlocks
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import FOLDS_DIRECTORY, cut_file
from headrace.log.retention import SegmentFacts, count_expired
from headrace.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIMEINDEX_SUFFIX
from headrace.log.snapshots import TakenSnapshot
from headrace.log.trash import Trash
from headrace.log.walk import Cut
from headrace.model.ids import Offset
from headrace.model.topic import UNLIMITED, Durability


class CheckpointPlan(NamedTuple):
    """What to write once every segment is synced up to the checkpoint's recovery point."""

    directory: str
    indexes: list[tuple[str, IndexBlocks]]
    snapshots: Sequence[TakenSnapshot]
    checkpoint: Checkpoint
    retainer_count: int  # of the log when its snapshots were taken

    def run(self, disk: Disk) -> None:
        """Blocks."""
        for stem, blocks in self.indexes:
            _write_at(disk, stem + INDEX_SUFFIX, blocks.positions[0], blocks.by_offset)
            _write_at(disk, stem + TIMEINDEX_SUFFIX, blocks.positions[1], blocks.by_time)
        folds = f"{self.directory}/{FOLDS_DIRECTORY}"
        for snapshot in self.snapshots:
            snapshots.save(disk, folds, snapshot)
        write_atomically(disk, self.directory, checkpoint_file.NAME, checkpoint_file.encode(self.checkpoint))
        for snapshot in self.snapshots:
            snapshots.remove_others(disk, folds, snapshot.name, keep=snapshot.offset)


def plan_checkpoint(log: PartitionLog, folds: Sequence[TakenSnapshot], *, shutdown_id: str = "") -> CheckpointPlan:
    """Take down the log's state as of now. The segments must be flushed up to its end before the plan is run."""
    active = log.active
    assert active.index is not None
    indexes = []
    for segment in log.segments:
        index = segment.index
        if index is None or (index.is_sealed and not index.has_unsaved):
            continue
        sealed_at = segment.next_offset if segment is not active and not index.is_sealed else None
        if index.has_unsaved or sealed_at is not None:
            indexes.append((segment.stem, index.take_unsaved(sealed_at=sealed_at)))
    log.bytes_since_checkpoint = 0
    return CheckpointPlan(
        directory=log.directory,
        indexes=indexes,
        snapshots=folds,
        checkpoint=Checkpoint(
            log_start=log.start_offset,
            recovery_point=log.end_offset,
            recovery_segment=active.base_offset,
            recovery_position=active.size,
            journal_sequence=log.journal_sequence,
            shutdown_id=shutdown_id,
            max_timestamp_ms=active.index.max_timestamp_ms,
            index_count=len(active.index),
            snapshot_offset=min((fold.offset for fold in folds), default=log.snapshot_offset),
            epochs=[(int(epoch), int(start)) for epoch, start in log.epochs.entries],
            segments=[int(segment.base_offset) for segment in log.segments],
        ),
        retainer_count=log.retainer_count,
    )


def checkpointed(log: PartitionLog, plan: CheckpointPlan) -> None:
    """Note that a plan is durable."""
    log.saved = plan.checkpoint
    log.recovery_point = Offset(max(log.recovery_point, plan.checkpoint.recovery_point))
    log.recovery_base = Offset(max(log.recovery_base, plan.checkpoint.recovery_segment))
    if plan.retainer_count == log.retainer_count:
        log.snapshot_offset = Offset(plan.checkpoint.snapshot_offset)


def needs_roll(log: PartitionLog, *, now_ms: int, wall_ms: int) -> bool:
    """Whether the active segment is too old to go on, by its own age or because all of it is past retention.

    `now_ms` is what messages are judged by, `wall_ms` what segments are made by.
    """
    active = log.active
    if active.is_empty:
        return False
    assert active.index is not None
    newest_ms = active.index.max_timestamp_ms
    config = log.config
    retention_ms = config.retention_ms if config.is_deleting else UNLIMITED
    expired = retention_ms != UNLIMITED and 0 <= newest_ms < now_ms - retention_ms
    deleted = log.start_offset >= log.end_offset
    return expired or deleted or wall_ms - active.created_ms >= config.segment_age_ms_max


def needs_checkpoint(log: PartitionLog, config: LogConfig, *, now_ms: int) -> bool:
    """Whether enough has come since the last checkpoint, or a segment was closed since."""
    rolled = log.recovery_base < log.active.base_offset
    if log.config.durability is not Durability.MEMORY:
        return rolled or log.bytes_since_checkpoint >= config.checkpoint_bytes
    # Nobody asked for these bytes to be synced, and a checkpoint syncs them. The kernel writes them out by itself
    # within half a minute, after which it costs nothing; until then only retention is a reason.
    settled = now_ms - log.active.created_ms >= config.memory_settle_ms
    crowded = log.config.is_deleting and UNLIMITED < log.config.retention_bytes < log.size_bytes - log.active.size
    return rolled and (settled or crowded)


def expire(log: PartitionLog, *, floor: Offset, now_ms: int) -> None:
    """Drop the segments that retention lets go, in memory. The cleaner is asked for those that it still works on."""
    # The segment that the checkpoint names stays, or an unclean start would miss it.
    floor = min(floor, log.recovery_base)
    if log.snapshot_offset >= 0:
        floor = min(floor, log.snapshot_offset)
    facts = [SegmentFacts(s.next_offset, s.size, s.max_timestamp_ms) for s in log.segments[:-1]]
    count = count_expired(
        facts,
        log.config,
        active_bytes=log.active.size,
        log_start=log.start_offset,
        floor=floor,
        now_ms=now_ms,
        live_from=_live_from(log),
    )
    log.drop_segments(unclaimed(log, log.segments[:count]))


class DropPlan(NamedTuple):
    """The durable side of dropping a log's oldest segments, before their files go."""

    directory: str
    stems: list[str]
    checkpoint: Checkpoint

    def run(self, disk: Disk) -> None:
        """Blocks. The indexes go first: on a full disk the new checkpoint takes their blocks."""
        for stem in self.stems:
            for suffix in (INDEX_SUFFIX, TIMEINDEX_SUFFIX):
                if disk.exists(stem + suffix):
                    disk.remove(stem + suffix)
        write_atomically(disk, self.directory, checkpoint_file.NAME, checkpoint_file.encode(self.checkpoint))


def plan_drop(log: PartitionLog) -> DropPlan:
    """Have the durable checkpoint forget what was dropped. Nothing else in it is new: no segment is synced."""
    saved = log.saved
    last = saved.segments[-1] if saved.segments else saved.recovery_segment
    return DropPlan(
        directory=log.directory,
        stems=log.dropped_stems,
        checkpoint=msgspec.structs.replace(
            saved,
            log_start=log.start_offset,
            segments=[int(one.base_offset) for one in log.segments if one.base_offset <= last],
            shutdown_id="",
        ),
    )


def _live_from(log: PartitionLog) -> Offset:
    """The end of the oldest segments in which nothing is live."""
    offset = log.segments[0].base_offset
    if log.retainer is not None:
        limit = log.retainer.limit()
        for segment in log.segments[:-1]:
            if segment.next_offset > limit or log.retainer.live_count(segment.base_offset, segment.next_offset):
                break
            offset = segment.next_offset
    return offset


class TruncationPlan(NamedTuple):
    """The files' side of a cut that memory has made already.

    The checkpoint comes first. It lowers the recovery point, so that a crash in the middle finds a tail to be checked
    and not damage, and it voids the journal's records of this partition, so that none of what is cut comes back. A
    cleaned segment that is cut says so next: until then it is whole, and so is the log.
    """

    checkpoint: CheckpointPlan
    cleaned: bytes | None
    path: str
    size: int
    later_stems: list[str]

    def run(self, disk: Disk, trash: Trash) -> None:
        """Blocks."""
        _remove_index(disk, self.path.removesuffix(LOG_SUFFIX))
        lower_compacted(disk, self.checkpoint.directory, Offset(self.checkpoint.checkpoint.recovery_point))
        self.checkpoint.run(disk)
        if self.cleaned is not None:
            write_atomically(disk, self.checkpoint.directory, cleaned_file.NAME, self.cleaned)
        for stem in reversed(self.later_stems):
            trash.take_segment(stem)
        cut_file(disk, self.path, self.size)
        folds = f"{self.checkpoint.directory}/{FOLDS_DIRECTORY}"
        snapshots.remove_above(disk, folds, self.checkpoint.checkpoint.recovery_point)


def plan_truncation(log: PartitionLog, cut: Cut, *, journal_sequence: int) -> TruncationPlan:
    """Cut a flushed log back to a batch boundary, in memory; the plan does the same to its files."""
    segment = cut.segment
    had_cleaned = any(one.cleaned is not None for one in log.segments[log.segments.index(segment) :])
    later = log.cut(segment, cut.position, cut.offset)
    if cut.cleaned is not segment.cleaned:
        segment.set_cleaned(cut.cleaned)
    log.journal_sequence = journal_sequence
    log.recovery_base = min(log.recovery_base, segment.base_offset)
    assert segment.index is not None
    segment.index.forget_saved()
    return TruncationPlan(
        checkpoint=plan_checkpoint(log, ()),
        cleaned=cleaned_file.encode(log.cleaned_entries) if had_cleaned else None,
        path=segment.path,
        size=cut.position,
        later_stems=[gone.stem for gone in later],
    )


def _remove_index(disk: Disk, stem: str) -> None:
    """Durably, because what is written anew is not synced: a crash could bring back an index whose checksums are right
    and which speaks of batches that are no longer there."""
    for suffix in (INDEX_SUFFIX, TIMEINDEX_SUFFIX):
        if disk.exists(stem + suffix):
            disk.remove(stem + suffix)
    disk.sync_directory(parent_directory(stem))


def _write_at(disk: Disk, path: str, position: int, data: bytes) -> None:
    """Replace a file from a position on. Not synced: indexes are a cache, and each block has its checksum."""
    file = disk.open(path, create=True)
    try:
        file.truncate(position)
        write_fully(file, [data], position)
    finally:
        file.close()
