"""Which of the transactional batches of a fetch were aborted, for who reads what is committed."""

from collections.abc import Sequence

from headrace.model.batch import BatchHeader


class Aborted:
    """The broker says where a producer's aborted transactions begin; each ends at the producer's next marker."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._to_come = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self._open: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Whether this batch is to be passed over. To be asked for every batch, in order."""
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._open.add(self._to_come.pop()[0])
        if not header.is_transactional:
            return False
        if header.is_control:
            self._open.discard(header.producer_id)
        return header.producer_id in self._open
