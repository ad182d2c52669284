"""The blocking half of a log store's start and stop.

Start, in this order, each step repeatable after a crash in it:
    take the clean-shutdown mark away, durably, so that a crash from here on is seen as one
    after a crash: refuse to start on a journal that is damaged, where messages may be that are nowhere else
    open every partition and cut torn tails
    replay the journal into the segments and sync them
    void the journal
Stop: every partition was flushed and checkpointed under a new shutdown id; void the journal, then write the mark.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.host.clock import Clock
from headrace.host.disk import Disk, parent_directory, read_file, write_atomically
from headrace.log.files import Files
from headrace.log.journal import Journal, JournalRecord
from headrace.log.made import NAME as MADE
from headrace.log.made import Made
from headrace.log.maintenance import checkpointed, plan_checkpoint
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import Opening, create_log, open_log
from headrace.log.trash import Trash
from headrace.model.batch import read_header
from headrace.model.errors import HeadraceError, PartitionOfflineError
from headrace.model.ids import PartitionId
from headrace.model.topic import TopicConfig

log = logging.getLogger(__name__)

PARTITIONS = "partitions"
_MARK = "clean-shutdown"


class Opened(NamedTuple):
    logs: dict[PartitionId, PartitionLog]
    refused: dict[PartitionId, HeadraceError]


class Startup:
    def __init__(self, *, disk: Disk, files: Files, journal: Journal, directory: str, clock: Clock) -> None:
        self._disk = disk
        self._files = files
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self._made = Made(disk, directory)
        self._shutdown_id = ""
        self._journaled: Mapping[PartitionId, Sequence[JournalRecord]] = {}  # until it is replayed

    @property
    def trash(self) -> Trash:
        return self._trash

    def open_all(self, partitions: Mapping[PartitionId, TopicConfig]) -> Opened:
        disk = self._disk
        disk.make_directory(self._directory)
        root = f"{self._directory}/{PARTITIONS}"
        self._made.load(is_new=not disk.exists(root) and not disk.exists(self._journal.directory))
        if self._made.is_lost:
            log.warning(
                "list of partitions is missing; restore it from a backup, or see that no partition is missing too",
                extra={"file": f"{self._directory}/{MADE}"},
            )
        elif not self._made:
            # Else it stays away if it is, for whoever puts it back.
            disk.make_directory(root)
        self._trash = Trash(disk, f"{self._directory}/trash")
        records = self._journal.open()
        disk.sync_directory(self._directory)
        disk.sync_directory(parent_directory(self._directory))
        self._shutdown_id = self._read_mark()
        if self._shutdown_id:
            self._journal.forget_missing()
        self._take_mark()
        if not self._shutdown_id and (damage := self._journal.find_damage(was_used=len(self._made) > 0)) is not None:
            raise damage
        self._trash.empty()
        if not self._journal.is_given_up:
            self._journaled = _by_partition(records)
        opened = Opened({}, {})
        for id, config in partitions.items():
            self._try_open(id, config, opened)
        # A partition that the metadata does not know keeps what was acknowledged to it (failure row 20).
        for record in records:
            id = record.partition
            if id not in opened.logs and id not in opened.refused and disk.exists(self.path(id)):
                log.warning("partition is not in the metadata; its files are kept", extra={"directory": self.path(id)})
                self._try_open(id, TopicConfig(), opened)
        self._replay(records, opened)
        self._journaled = {}
        self._begin_journal(opened)
        for id in [id for id in opened.logs if id not in partitions]:
            self._files.close_under(opened.logs.pop(id).directory)
        self._note_opened(partitions, opened)
        return opened

    def _note_opened(self, partitions: Iterable[PartitionId], opened: Opened) -> None:
        try:
            self._made.keep(id for id in partitions if id in opened.logs or id in self._made)
        except OSError as error:
            log.warning("list of partitions could not be written", extra={"error": str(error)})

    def _read_mark(self) -> str:
        path = f"{self._directory}/{_MARK}"
        # A damaged mark is no mark: no partition's checkpoint was written under it.
        return read_file(self._disk, path).decode("ascii", "replace") if self._disk.exists(path) else ""

    def _take_mark(self) -> None:
        path = f"{self._directory}/{_MARK}"
        if self._disk.exists(path):
            self._disk.remove(path)
            self._disk.sync_directory(self._directory)

    def path(self, id: PartitionId) -> str:
        return f"{self._directory}/{PARTITIONS}/{id.directory}"

    def open_one(self, id: PartitionId, config: TopicConfig) -> PartitionLog:
        """Open a partition, or make it if it never was made."""
        now_ms = self._clock.wall_ms()
        opening = Opening(self._disk, self._files, self._trash, self._shutdown_id, now_ms, self._journaled)
        path, was_made = self.path(id), id in self._made
        if self._disk.exists(path):
            return open_log(id, path, config, opening, was_made=was_made)
        if was_made:
            raise PartitionOfflineError(
                f"{path} is missing, and this node had made it; put it back and restart the node, or delete the topic"
            )
        self._make_root()
        return create_log(id, path, config, opening)

    def _make_root(self) -> None:
        root = f"{self._directory}/{PARTITIONS}"
        if not self._disk.exists(root):
            self._disk.make_directory(root)
            self._disk.sync_directory(self._directory)

    def note_made(self, ids: Iterable[PartitionId]) -> None:
        """Write down that the files of partitions are there. One call at a time."""
        self._made.add(ids)

    def _try_open(self, id: PartitionId, config: TopicConfig, opened: Opened) -> None:
        try:
            opened.logs[id] = self.open_one(id, config)
        except (HeadraceError, OSError) as error:
            self._refuse(id, error, opened)

    def _refuse(self, id: PartitionId, error: HeadraceError | OSError, opened: Opened) -> None:
        """Go on without a partition. Its files and the journal stay as they are, for a start after the repair."""
        log.critical("partition refused to open", extra={"directory": self.path(id), "error": str(error)})
        opened.logs.pop(id, None)
        if isinstance(error, OSError):
            error = PartitionOfflineError(f"{self.path(id)} could not be read: {error}; check the disk and restart")
        opened.refused[id] = error

    def _replay(self, records: Iterable[JournalRecord], opened: Opened) -> None:
        """Put what only the journal holds into the segments, then make all that was read again durable there."""
        for record in records:
            partition_log = opened.logs.get(record.partition)
            if partition_log is None or record.sequence <= partition_log.journal_sequence:
                continue
            try:
                self._replay_record(record, partition_log)
            except HeadraceError as error:
                partition_log.fail(error)
                self._refuse(record.partition, error, opened)
        for id, partition_log in list(opened.logs.items()):
            if partition_log.has_unsynced:
                plan = partition_log.plan_flush()
                try:
                    plan.run(self._disk)
                except OSError as error:
                    partition_log.flushed(plan, error)
                    self._refuse(id, error, opened)
                    continue
                partition_log.flushed(plan)
            partition_log.durable_offset = partition_log.covered_offset = partition_log.end_offset

    def _replay_record(self, record: JournalRecord, partition_log: PartitionLog) -> None:
        view = memoryview(bytearray(record.batches))
        position = 0
        while position < len(view):
            header = read_header(view, position)
            # Below the end: the segment has it. Above: an operator has given up what came before it.
            if header.base_offset == partition_log.end_offset:
                partition_log.append_stored(
                    header, view[position : position + header.size], now_ms=self._clock.wall_ms()
                )
            position += header.size

    def _begin_journal(self, opened: Opened) -> None:
        floors = [partition_log.journal_sequence for partition_log in opened.logs.values()]
        sequence = max([self._journal.sequence, *floors])
        if opened.refused:
            # The journal must be kept for them, and must not be replayed into the others a second time.
            for partition_log in opened.logs.values():
                partition_log.journal_sequence = sequence
                self._checkpoint(partition_log)
        self._journal.begin(sequence_min=sequence, keep=bool(opened.refused))

    def _checkpoint(self, partition_log: PartitionLog) -> None:
        """Write down where a log stands that is durable as a whole."""
        plan = plan_checkpoint(partition_log, ())
        plan.run(self._disk)
        checkpointed(partition_log, plan)

    # Going.

    def discard_partition(self, id: PartitionId) -> None:
        if self._disk.exists(self.path(id)):
            self._trash.take_directory(self.path(id))
        self._trash.empty()

    def discard_segments(self, stems: Iterable[str]) -> None:
        for stem in stems:
            self._trash.take_segment(stem)
        self._trash.empty()

    def leave(self, shutdown_id: str) -> None:
        """Close everything; with a shutdown id, as a clean stop."""
        if shutdown_id:
            self._journal.clear()
            write_atomically(self._disk, self._directory, _MARK, shutdown_id.encode())
        self._journal.close()
        self._files.close_all()


def _by_partition(records: Iterable[JournalRecord]) -> Mapping[PartitionId, Sequence[JournalRecord]]:
    found: dict[PartitionId, list[JournalRecord]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return dict(found)
