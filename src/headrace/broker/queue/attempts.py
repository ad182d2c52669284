"""Which messages a receive with an attempt id got, so that one that is repeated gets the same."""

from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.receive import Taken
from headrace.folds.queue.fold import Lease

# How long an attempt id is remembered, how many are, and how many leases of all of them.
_ATTEMPT_MS = 5 * 60_000
_COUNT_MAX = 10_000
_LEASES_MAX = 100_000

Held = list[tuple[PartitionQueue, Lease]]


class Attempts:
    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Held]] = {}  # until when, in the order of time
        self._lease_count = 0

    def find(self, attempt_id: str, now_ms: int) -> Held:
        until_ms, held = self._known.get(attempt_id, (0, []))
        return held if until_ms > now_ms else []

    def remember(self, attempt_id: str, taken: Taken, now_ms: int) -> None:
        held = [(partition, lease) for partition, leases in taken for lease in leases]
        if attempt_id in self._known:
            self._forget(attempt_id)
        self._known[attempt_id] = now_ms + _ATTEMPT_MS, held
        self._lease_count += len(held)
        while (oldest := next(iter(self._known))) != attempt_id and (
            self._known[oldest][0] <= now_ms or len(self._known) > _COUNT_MAX or self._lease_count > _LEASES_MAX
        ):
            self._forget(oldest)

    def _forget(self, attempt_id: str) -> None:
        _, held = self._known.pop(attempt_id)
        self._lease_count -= len(held)
