"""What happens to which message when: one structure for leases, delays and lives.

A number is kept for each offset, whose upper bits are the moment; what stands in the lower bits is the owner's
affair. A heap of (moment, offset), packed in one integer each, says what is next. It is cleaned up late: an entry
whose message is gone, or was put off, is found out when it comes to the top. For every offset that is kept, the heap
has an entry that is not later than its moment.
"""

from heapq import heapify, heappop, heappush, heapreplace

_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
# So many outdated entries are left alone, and beyond them a quarter of what is kept: a lease may cost 200 bytes, of
# which 56 are for its entry in the heap.
_OUTDATED_COUNT = 1024
_OUTDATED_SHIFT = 2
# So many outdated entries are cleaned up at most before somebody is told what comes next.
_CLEANED_COUNT = 1000


class Deadlines:
    """Numbers by offset, and the order in which their moments come."""

    __slots__ = ("_heap", "_shift", "values")

    def __init__(self, *, shift: int = 0) -> None:
        self._shift = shift  # how many bits of a number stand below its moment
        self.values: dict[int, int] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, offset: int) -> bool:
        return offset in self.values

    def get(self, offset: int) -> int | None:
        return self.values.get(offset)

    def put(self, offset: int, value: int) -> None:
        old = self.values.get(offset)
        self.values[offset] = value
        moment_ms = value >> self._shift
        if old is None or moment_ms < old >> self._shift:
            heappush(self._heap, (moment_ms << _OFFSET_BITS) | offset)

    def pop(self, offset: int) -> int | None:
        value = self.values.pop(offset, None)
        kept_count = len(self.values)
        if len(self._heap) > kept_count + (kept_count >> _OUTDATED_SHIFT) + _OUTDATED_COUNT:
            self._rebuild()
        return value

    def pop_below(self, offset: int) -> None:
        self.values = {kept: value for kept, value in self.values.items() if kept >= offset}
        self._rebuild()

    def load(self, values: dict[int, int]) -> None:
        self.values = values
        self._rebuild()

    def is_due(self, now_ms: int) -> bool:
        """Whether `pop_due` may find something. Cheap, for every call of the hot path."""
        return bool(self._heap) and self._heap[0] >> _OFFSET_BITS <= now_ms

    def pop_due(self, now_ms: int, count_max: int) -> list[tuple[int, int]]:
        """Offsets whose moment has come, with their numbers, the earliest first. They are kept no longer.

        At most so many entries are looked at, outdated ones among them: `is_due` says whether there are more.
        """
        found: list[tuple[int, int]] = []
        heap, values = self._heap, self.values
        for _ in range(count_max):
            if not heap or heap[0] >> _OFFSET_BITS > now_ms:
                break
            if self._clean_top():
                offset = heappop(heap) & _OFFSET_MASK
                found.append((offset, values.pop(offset)))
        return found

    def next_ms(self) -> int | None:
        """The first moment to come; an earlier one, where more than a few outdated entries stand before it."""
        heap = self._heap
        left = _CLEANED_COUNT
        while heap and left and not self._clean_top():
            left -= 1
        return heap[0] >> _OFFSET_BITS if heap else None

    def _clean_top(self) -> bool:
        """Whether the first entry says what is so. If not, it is taken away, or put where it belongs."""
        heap = self._heap
        entry = heap[0]
        offset = entry & _OFFSET_MASK
        value = self.values.get(offset)
        if value is None:
            heappop(heap)
            return False
        kept_ms, moment_ms = value >> self._shift, entry >> _OFFSET_BITS
        if kept_ms == moment_ms:
            return True
        # Put off, or else an earlier entry has told of it already.
        if kept_ms > moment_ms:
            heapreplace(heap, (kept_ms << _OFFSET_BITS) | offset)
        else:
            heappop(heap)
        return False

    def _rebuild(self) -> None:
        shift = self._shift
        self._heap = [((value >> shift) << _OFFSET_BITS) | offset for offset, value in self.values.items()]
        heapify(self._heap)
