"""What a partition knows of transactions: how far everything is decided, and what was decided against."""

from abc import abstractmethod
from collections.abc import Collection, Iterator

from headrace.folds.producer import ProducerFold, ProducerState
from headrace.folds.transaction_index import Aborted
from headrace.log.partition_log import PartitionLog
from headrace.log.replay import replay_batches
from headrace.model.batch import Buffer, read_header
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import decode_marker, is_marker


class Stability:
    """The part of a partition that answers questions about transactions."""

    log: PartitionLog
    _producers: ProducerFold

    @property
    @abstractmethod
    def high_watermark(self) -> Offset:
        """Every offset below it is committed; the partition's to say."""

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction is decided, for good: as far as readers of committed messages may read."""
        stable = self._producers.transactions.stable_offset(self.high_watermark)
        return max(stable, min(self.log.start_offset, self.high_watermark))

    def aborted_in(self, start: Offset, end: Offset, data: Buffer) -> list[tuple[int, int]]:
        """Producer and first offset of the aborted transactions that a reader of these batches meets.

        Only those of which a batch is there. Compaction may have taken all of one, its marker too, and a client that
        is told of it would wait for that marker and drop the producer's next transactions.
        """
        found = self.aborted(start, end)
        if not found:
            return []
        met: list[tuple[int, int]] = []
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if header.is_transactional and not header.is_control:
                met.append((header.producer_id, header.base_offset))
            at += header.size
        return [
            (one.producer_id, one.first_offset)
            for one in found
            if any(id == one.producer_id and one.first_offset <= base <= one.last_offset for id, base in met)
        ]

    def aborted(self, start: Offset, end: Offset) -> list[Aborted]:
        """The aborted transactions that have an offset in a range."""
        return self._producers.transactions.aborted_in(start, end)

    def forget_aborted(self, marker_offsets: Collection[int]) -> None:
        """Compaction has left nothing of the transactions that ended at these offsets."""
        self._producers.transactions.forget(marker_offsets)

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer's transaction of this epoch is open here."""
        return self._producers.is_open(producer_id, epoch)

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        return self._producers.next_sequence(producer_id, epoch)

    def producers(self) -> Iterator[tuple[int, ProducerState]]:
        return self._producers.producers()

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    def _open_limit(self) -> Offset:
        """Nothing from here on is dropped from the log: an open transaction keeps what comes after its first batch."""
        first = self._producers.transactions.first_open_offset
        return self.log.end_offset if first is None else first

    def _replay(self, now_ms: int) -> None:
        """Bring the producers up to the log's end. Blocks."""
        start = max(self._producers.end_offset, self.log.start_offset)
        for batch in replay_batches(self.log, start):
            marker = decode_marker(batch.read()) if is_marker(batch.header) else None
            self._producers.apply(batch.header, seen_ms=now_ms, marker=marker)
        self._producers.transactions.forget_below(self.log.start_offset)
