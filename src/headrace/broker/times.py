"""Finding a partition's messages by time."""

from abc import abstractmethod

from headrace.log.driver import LogStore
from headrace.log.partition_log import PartitionLog
from headrace.model.batch import BatchHeader
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.wire.kafka.records import decode_batch


class TimeLookup:
    """The part of a partition that answers questions about times."""

    log: PartitionLog
    _store: LogStore

    @property
    @abstractmethod
    def high_watermark(self) -> Offset:
        """Every offset below it is committed; the partition's to say."""

    async def offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """The first committed message at or after a time, with its own time."""
        try:
            return await self._offset_for_time(timestamp_ms)
        except CorruptLogError as error:
            self._store.damage.note(error)
            raise

    async def _offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        offset = self.log.start_offset
        while True:
            reads = self.log.find_time(timestamp_ms, upto=self.high_watermark, from_offset=offset)
            located = await self._store.read(reads)
            if located is None:
                return None
            found = await self._first_record(located.header, timestamp_ms)
            if found is not None:
                return found
            # The batch's largest time is that of a deleted message, or a client's claim.
            offset = located.header.next_offset

    async def max_timestamp(self, *, upto: Offset) -> tuple[Offset, int]:
        """The message with the largest timestamp of those below an offset; offset -1 where there is none.

        Under load something newer is always on its way to the disk, and must not hide what is committed.
        """
        largest_ms = await self._store.read(self.log.max_timestamp_ms(upto=upto))
        found = await self.offset_for_time(largest_ms) if largest_ms >= 0 else None
        return found or (Offset(-1), -1)

    async def _first_record(self, header: BatchHeader, timestamp_ms: int) -> tuple[Offset, int] | None:
        start = self.log.start_offset
        reads = self.log.read(max(Offset(header.base_offset), start), bytes_max=0, upto=header.next_offset)
        found = await self._store.read(reads)
        for record in decode_batch(found.data):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                return Offset(record.offset), record.timestamp_ms
        return None
