"""The node's journal: one file whose sync makes the small appends of every partition durable.

Syncs a second are the scarce thing. Small appends with durability `fsync` are written, all of one turn together, to the
journal with one sync; their segments follow behind. Two files are used in turn. When the active one is full, the
other is taken, and the full one is free again once every segment that it speaks for was synced behind. The files are
filled with zeros when they are made and overwritten in place ever after, so a sync has no metadata to write.

    file    = header sector, records back to back
    header  = magic "HRJF" | CRC-32C | generation uint64 | sequence of the first record uint64
    record  = magic | CRC-32C | sequence uint64 | topic uuid | partition int32 | base offset int64
              | length uint32 | whole batches
    magic   = "HRJW" of the first record of a write, "HRJR" of the others

A record's checksum is begun with the file's generation, so what an earlier use of the file left behind never checks.
Sequences rise for ever. Replay takes the files in order of generation and, of each, the records up to the first that
does not check: that one was being written when the node died, and nobody had been answered.

Unless a later write stands behind it. A write begins when the one before it was synced, so what does not check was
durable then, and is damaged now: what it held was acknowledged and may be nowhere else. `find_damage` says so. It also
misses a file that is gone or was emptied, by the list that is kept of them (`journal_list.py`). An operator who gives
up what a file held leaves one of its name with `.lost` behind it.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.host.disk import Disk, File, parent_directory, write_fully
from headrace.log.journal_list import JournalList
from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset, PartitionId
from headrace.wire.crc import crc32c

_SECTOR_BYTES = 512
_FILE_HEADER = struct.Struct(">4sIQQ")
_RECORD_HEADER = struct.Struct(">4sIQ16siqI")
# The same in two parts, the second of which is under the checksum, and with the place in one piece.
_RECORD_START = struct.Struct(">4sI")
_RECORD_REST = struct.Struct(">Q20sqI")
_PLACE = struct.Struct(">16si")
_FILE_MAGIC = b"HRJF"
_WRITE_MAGIC = b"HRJW"
_RECORD_MAGIC = b"HRJR"
_CRC_END = 8
_FILL_BYTES = 1024 * 1024
_SEARCH_BYTES = 1024 * 1024
_FILE_COUNT = 2
_SUFFIX = ".journal"

LOST_SUFFIX = ".lost"
RECORD_HEADER_BYTES = _RECORD_HEADER.size


class JournalRecord(NamedTuple):
    sequence: int
    partition: PartitionId
    base_offset: Offset
    batches: bytes


class JournalEntry:
    """Batches of one partition to be made durable."""

    __slots__ = ("base_offset", "buffers", "place", "size")

    def __init__(self, place: bytes, base_offset: Offset, buffers: list[Buffer], size: int) -> None:
        self.place = place
        self.base_offset = base_offset
        self.buffers = buffers
        self.size = size


def place_of(partition: PartitionId) -> bytes:
    """A partition's name in records. Made once for each partition, not for each record."""
    return _PLACE.pack(partition.topic_id.bytes, partition.partition)


class JournalFile:
    """One file and how far it is written."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.generation = 0
        self.seed = 0  # of its records' checksums
        self.position = 0
        self.is_free = True
        self.is_retired = False
        # Where the records end that were read when it was opened, and the sequence that should follow them.
        self.read_end = 0
        self.next_sequence = 0


class Framed(NamedTuple):
    """Records of one write, and where they go."""

    file: File
    data: bytes
    position: int

    def write(self) -> None:
        """Blocks until they are on stable storage. The one write before this has ended."""
        self.file.write_through(self.data, self.position)


class Journal:
    """Blocks, but for `frame`: call it from a thread, one call at a time."""

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int) -> None:
        self._disk = disk
        self.directory = directory
        self._file_bytes = file_bytes
        self._files: list[JournalFile] = []
        self._list = JournalList(disk, parent_directory(directory))
        self._listed: dict[str, int] | None = None  # as it was found
        self._generation = 0
        self._sequence = 0

    @property
    def sequence(self) -> int:
        """Sequence of the last record."""
        return self._sequence

    @property
    def is_given_up(self) -> bool:
        """Whether an operator gave up what a file held, so that records may be missing before others."""
        return any(name.endswith(_SUFFIX + LOST_SUFFIX) for name in self._disk.list_directory(self.directory))

    # Start.

    def open(self) -> list[JournalRecord]:
        """Open the files that are there and return what they hold, in order."""
        self._listed = self._list.load()
        self._disk.make_directory(self.directory)
        found: list[tuple[int, list[JournalRecord]]] = []
        for name in self._disk.list_directory(self.directory):
            if not name.endswith(_SUFFIX):
                continue
            file = self._disk.open(f"{self.directory}/{name}")
            journal_file = JournalFile(file)
            self._files.append(journal_file)
            header = _read_file_header(file)
            if header is not None:
                journal_file.generation, journal_file.next_sequence = header
                records = list(_read_records(journal_file))
                found.append((journal_file.generation, records))
                self._generation = max(self._generation, journal_file.generation)
                self._sequence = max(self._sequence, journal_file.next_sequence - 1)
        found.sort(key=lambda pair: pair[0])
        return [record for _, records in found for record in records]

    def find_damage(self, *, was_used: bool = False) -> CorruptLogError | None:
        """Something in the files that was durable and no longer checks. For who opens them after a crash, before
        `begin`: a clean stop has voided all of it. The last write of a file may be a torn one, and is taken for that.

        `was_used`: records were written here, so there were files, also where the list of them is gone.
        """
        listed = self._listed
        if listed is None:
            listed = {f"{number}{_SUFFIX}": 0 for number in range(_FILE_COUNT)} if was_used else {}
        sizes = {_name_of(one): one.file.size() for one in self._files}
        for name, size in listed.items():
            path = f"{self.directory}/{name}"
            if name not in sizes and not self._disk.exists(path + LOST_SUFFIX):
                return _damage(path, 0, f"a file of {size} bytes" if size else "a file", "no file")
            if sizes.get(name, size) < size:
                return _damage(path, sizes[name], f"a file of {size} bytes", f"{sizes[name]} bytes")
        for one in self._files:
            path = one.file.path
            if not one.read_end:
                head = one.file.pread(0, _FILE_HEADER.size)
                # A file is listed once it has a header.
                if _name_of(one) in (self._listed or ()) or (len(head) == _FILE_HEADER.size and any(head)):
                    return _damage(path, 0, "a header", head.hex() or "nothing")
            elif (later := _find_later_write(one)) is not None:
                found = f"none that checks, and record {later} behind it"
                return _damage(path, one.read_end, f"record {one.next_sequence}", found)
        return None

    def begin(self, *, sequence_min: int, keep: bool = False) -> None:
        """Take a file for writing. What was replayed is durable elsewhere, so all files are free and all records void.

        With `keep` the files stay as they are and new ones are taken: a partition that refused to open will need them.

        `sequence_min` is the largest sequence that any partition's checkpoint names: none may be given out again, even
        if the records that had them were lost.
        """
        self._sequence = max(self._sequence, sequence_min)
        if keep:
            for file in self._files:
                file.is_retired, file.is_free = True, False
        else:
            self.clear()
            # What is about to go, or to become shorter, is struck off the list first.
            sizes = {name: min(size, self._file_bytes) for name, size in self._sizes(_FILE_COUNT).items()}
            if self._list.write(sizes):
                for extra in self._files[_FILE_COUNT:]:
                    extra.file.close()
                    self._disk.remove(extra.file.path)
                del self._files[_FILE_COUNT:]
                for file in self._files:
                    self._fill(file)
        while self._usable_count < _FILE_COUNT:
            self._add_file()
        if self._list.write(self._sizes()):
            self._put_lost_away()
        self._start(next(file for file in self._files if file.is_free))

    def clear(self) -> None:
        """Void all records, by giving each file a generation under which none of them checks."""
        for file in self._files:
            self._void(file)

    def _put_lost_away(self) -> None:
        """What an operator gave up is given up once. The next file of that name would be missed again."""
        for name in self._disk.list_directory(self.directory):
            if name.endswith(_SUFFIX + LOST_SUFFIX):
                path = f"{self.directory}/{name}"
                self._disk.rename(path, f"{path}-{self._generation}")

    def forget_missing(self) -> None:
        """Strike off the list what is missing, because a clean stop had voided it."""
        if self._listed is not None:
            found = self._sizes()
            sizes = {name: min(size, found[name]) for name, size in self._listed.items() if name in found}
            if sizes != self._listed:
                self._list.write(sizes)

    def _sizes(self, count: int | None = None) -> dict[str, int]:
        """How large the files are that have a header, or those of the first so many, by name."""
        return {_name_of(one): one.file.size() for one in self._files[:count] if one.generation}

    def _add_file(self) -> JournalFile:
        names = set(self._disk.list_directory(self.directory))
        name = next(name for n in range(len(names) + 1) if (name := f"{n}{_SUFFIX}") not in names)
        added = JournalFile(self._disk.open(f"{self.directory}/{name}", create=True))
        try:
            self._fill(added)
            self._void(added)
            self._disk.sync_directory(self.directory)
        except OSError:
            added.file.close()
            self._disk.remove(added.file.path)
            raise
        self._files.append(added)
        self._list.write(self._sizes())
        return added

    def _fill(self, journal_file: JournalFile) -> None:
        """Have every block of the file allocated, so that no later sync has to write where a block is."""
        file = journal_file.file
        position = file.size()
        if position == self._file_bytes:
            return
        if position > self._file_bytes:
            file.truncate(self._file_bytes)
        zeros = bytes(_FILL_BYTES)
        while position < self._file_bytes:
            position += write_fully(file, [zeros[: self._file_bytes - position]], position)
        file.fdatasync()

    def _start(self, journal_file: JournalFile) -> None:
        self._void(journal_file)
        self._active = journal_file
        journal_file.is_free = False

    def _void(self, journal_file: JournalFile) -> None:
        self._generation += 1
        _write_file_header(journal_file.file, generation=self._generation, first_sequence=self._sequence + 1)
        journal_file.file.fdatasync()
        journal_file.generation = self._generation
        journal_file.seed = _seed(self._generation)
        journal_file.position = _SECTOR_BYTES
        journal_file.is_free = True

    # Write.

    def has_room(self, size: int) -> bool:
        return self._active.position + size <= self._file_bytes

    def can_switch(self) -> bool:
        return any(file.is_free for file in self._files) or self._usable_count < _FILE_COUNT

    @property
    def _usable_count(self) -> int:
        return sum(not file.is_retired for file in self._files)

    def switch(self) -> int:
        """Go over to a free file. Returns the full one's generation, for `release` or `retire`."""
        full = self._active
        free = next((file for file in self._files if file.is_free), None)
        self._start(free or self._add_file())
        return full.generation

    def release(self, generation: int) -> None:
        """Every segment that the file of this generation speaks for is synced: it may be written over."""
        self._of(generation).is_free = True

    def retire(self, generation: int) -> None:
        """Keep a file as it is until the next start, for a partition that must be recovered. Another takes its turn."""
        self._of(generation).is_retired = True

    def _of(self, generation: int) -> JournalFile:
        return next(file for file in self._files if file.generation == generation)

    def frame(self, entries: Sequence[JournalEntry]) -> "Framed":
        """One record for each entry, in its place; does not block. Room was asked for before."""
        active = self._active
        sequence = self._sequence
        pieces: list[Buffer] = []
        magic = _WRITE_MAGIC
        for entry in entries:
            sequence += 1
            rest = _RECORD_REST.pack(sequence, entry.place, entry.base_offset, entry.size)
            crc = crc32c(rest, active.seed)
            for buffer in entry.buffers:
                crc = crc32c(buffer, crc)
            pieces.append(_RECORD_START.pack(magic, crc))
            pieces.append(rest)
            pieces += entry.buffers
            magic = _RECORD_MAGIC
        self._sequence = sequence
        # Copying small pieces together costs less than handing hundreds of them to the kernel.
        data = b"".join(pieces)
        framed = Framed(active.file, data, active.position)
        active.position += len(data)
        return framed

    def end_file(self) -> None:
        """Write nothing more to the active file, whose last write found no space. The next one goes to the other file.

        Behind what a failed write left, a record would be taken for damage. Records of it that did reach the file are
        no harm: what they hold goes to the segments, at the same offsets.
        """
        self._active.position = self._file_bytes

    def close(self) -> None:
        for file in self._files:
            file.file.close()


def _write_file_header(file: File, *, generation: int, first_sequence: int) -> None:
    body = struct.pack(">QQ", generation, first_sequence)
    header = struct.pack(">4sI", _FILE_MAGIC, crc32c(body)) + body
    write_fully(file, [header.ljust(_SECTOR_BYTES, b"\0")], 0)


def _read_file_header(file: File) -> tuple[int, int] | None:
    data = file.pread(0, _FILE_HEADER.size)
    if len(data) < _FILE_HEADER.size:
        return None
    magic, crc, generation, first_sequence = _FILE_HEADER.unpack(data)
    if magic != _FILE_MAGIC or crc != crc32c(data[_CRC_END:]):
        return None
    return generation, first_sequence


def _read_records(journal_file: JournalFile) -> Iterator[JournalRecord]:
    """The records up to the first that does not check; what comes next is noted in the file's object."""
    size = journal_file.file.size()
    journal_file.read_end = _SECTOR_BYTES
    while True:
        record = _read_record(journal_file, journal_file.read_end, size)
        if record is None or record.sequence != journal_file.next_sequence:
            return
        yield record
        journal_file.read_end += _RECORD_HEADER.size + len(record.batches)
        journal_file.next_sequence += 1


def _read_record(journal_file: JournalFile, position: int, size: int) -> JournalRecord | None:
    """The record that begins at a position of a file of a size, if it checks under the file's generation."""
    file = journal_file.file
    header = file.pread(position, _RECORD_HEADER.size)
    if len(header) < _RECORD_HEADER.size:
        return None
    magic, crc, sequence, topic_id, partition, base_offset, length = _RECORD_HEADER.unpack(header)
    position += _RECORD_HEADER.size
    if magic not in (_WRITE_MAGIC, _RECORD_MAGIC) or position + length > size:
        return None
    batches = file.pread(position, length)
    if crc32c(batches, crc32c(header[_CRC_END:], _seed(journal_file.generation))) != crc:
        return None
    return JournalRecord(sequence, PartitionId(UUID(bytes=topic_id), partition), Offset(base_offset), batches)


def _seed(generation: int) -> int:
    """What the checksums of a file's records are begun with."""
    return crc32c(struct.pack(">Q", generation))


def _name_of(journal_file: JournalFile) -> str:
    return journal_file.file.path.rpartition("/")[2]


def _damage(path: str, position: int, expected: str, found: str) -> CorruptLogError:
    give_up = "make an empty file" if found == "no file" else "rename it to"
    return CorruptLogError(
        file=path,
        position=position,
        expected=expected,
        found=found,
        what="journal",
        advice="messages that were acknowledged before the last crash may be in this file alone; restore it from a "
        f"backup, or {give_up} {path}{LOST_SUFFIX} to start without them",
    )


def _find_later_write(journal_file: JournalFile) -> int | None:
    """Sequence of the first record of a whole write behind the records that were read."""
    file, size = journal_file.file, journal_file.file.size()
    position = journal_file.read_end + 1
    while position < size:
        data = bytes(file.pread(position, _SEARCH_BYTES))
        at = data.find(_WRITE_MAGIC)
        while at >= 0:
            record = _read_record(journal_file, position + at, size)
            if record is not None and record.sequence > journal_file.next_sequence:
                return record.sequence
            at = data.find(_WRITE_MAGIC, at + 1)
        # One may begin in the last bytes of this piece.
        position += max(len(data) - len(_WRITE_MAGIC) + 1, 1)
    return None
