"""What happens to which message when: one structure for leases, delays and lives.

A number is kept for each offset, whose upper bits are the moment; what stands in the lower bits is the owner's
affair. An agenda of moments and offsets says what is next. Every offset that is kept has an entry there that says its
moment; what else is there is outdated, and may be dropped at any time: when it comes first, or when it is come across.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from operator import le

from headrace.folds.queue.agenda import Agenda

# Each time that so many entries have become outdated, it is looked whether they are too many: more than that, and half
# of what is kept, or a quarter where entries cost an object. A lease may cost 200 bytes, of which its number takes 122,
# and an entry 16 or 56. Then so many entries are looked through, of which a third is outdated.
_OUTDATED_COUNT = 1024
_LOOKED_COUNT = 8 * _OUTDATED_COUNT
# So many outdated entries are cleaned up at most before somebody is told what comes next.
_CLEANED_COUNT = 1000


class Deadlines:
    """Numbers by offset, and the order in which their moments come."""

    __slots__ = ("_agenda", "_looked_count", "_outdated_left", "_shift", "values")

    def __init__(self, *, shift: int = 0) -> None:
        self._shift = shift  # how many bits of a number stand below its moment
        self.values: dict[int, int] = {}
        self._agenda = Agenda()
        self._outdated_left = _OUTDATED_COUNT
        self._looked_count = 0  # entries that were looked at since they were not too many

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
        if old is None:
            self._agenda.push(moment_ms, (offset,))
        elif moment_ms != old >> self._shift:
            self._agenda.push(moment_ms, (offset,))
            self._note_outdated()

    def put_all(self, offsets: Sequence[int], value: int) -> None:
        """Keep one number for offsets of which none is kept."""
        if len(offsets) == 1:
            self.values[offsets[0]] = value
            self._agenda.push(value >> self._shift, offsets)
        elif offsets:
            self.values.update(dict.fromkeys(offsets, value))
            self._agenda.push(value >> self._shift, sorted(offsets))

    def move_all(self, numbers: Mapping[int, int]) -> None:
        """Keep other numbers, of one moment, for offsets of which some are kept."""
        values, shift = self.values, self._shift
        moved = [offset for offset, value in numbers.items() if values[offset] >> shift != value >> shift]
        values.update(numbers)
        if moved:
            self._agenda.push(numbers[moved[0]] >> shift, sorted(moved))
            self._outdated_left -= len(moved) - 1
            self._note_outdated()

    def pop(self, offset: int) -> int | None:
        value = self.values.pop(offset, None)
        if value is not None:
            self._note_outdated()
        return value

    def pop_below(self, offset: int) -> None:
        self.values = {kept: value for kept, value in self.values.items() if kept >= offset}
        self._rebuild()

    def load(self, values: dict[int, int]) -> None:
        self.values = values
        self._rebuild()

    def is_due(self, now_ms: int) -> bool:
        """Whether `pop_due` may find something. Cheap, for every call of the hot path."""
        return self._agenda.first_ms <= now_ms

    def pop_due(self, now_ms: int, count_max: int) -> list[tuple[int, int]]:
        """Offsets whose moment has come, with their numbers, the earliest first. They are kept no longer.

        At most so many entries are looked at, outdated ones among them: `is_due` says whether there are more.
        """
        found: list[tuple[int, int]] = []
        agenda, values = self._agenda, self.values
        for _ in range(count_max):
            if agenda.first_ms > now_ms:
                break
            offset = self._clean_first()
            if offset is not None:
                agenda.pop()
                found.append((offset, values.pop(offset)))
        return found

    def next_ms(self) -> int | None:
        """The first moment to come; an earlier one, where more than a few outdated entries stand before it."""
        agenda = self._agenda
        left = _CLEANED_COUNT
        while agenda.count and left and self._clean_first() is None:
            left -= 1
        return agenda.first_ms if agenda.count else None

    def _clean_first(self) -> int | None:
        """The first entry's offset, if it says what is so. If not, it is taken away."""
        moment_ms, offset = self._agenda.first()
        value = self.values.get(offset)
        if value is not None and value >> self._shift == moment_ms:
            return offset
        self._agenda.pop()
        return None

    def _note_outdated(self) -> None:
        self._outdated_left -= 1
        if self._outdated_left < 0:
            self._outdated_left = _OUTDATED_COUNT
            self._tidy()

    def _tidy(self) -> None:
        agenda = self._agenda
        looked_count = 0
        while self._has_many_outdated():
            if looked_count >= _LOOKED_COUNT:
                self._looked_count += looked_count
                # Who is put off and called back in turns has several entries for one moment, which all say what is so.
                if self._looked_count > 4 * agenda.count:
                    self._rebuild()
                return
            looked_count += agenda.drop_outdated(self.values, self._shift)
        self._looked_count = 0

    def _has_many_outdated(self) -> bool:
        agenda, kept_count = self._agenda, len(self.values)
        share = 4 if agenda.heap_count > kept_count // 4 else 2
        return agenda.count > kept_count + kept_count // share + _OUTDATED_COUNT

    def _rebuild(self) -> None:
        self._looked_count = 0
        agenda = self._agenda = Agenda()
        values, shift = self.values, self._shift
        # Most often they are in order, and what sorting allocates for a million would stay with the process.
        is_in_order = all(map(le, values.values(), islice(values.values(), 1, None)))
        order = values if is_in_order else sorted(values, key=values.__getitem__)
        for value, offsets in groupby(order, values.__getitem__):
            agenda.push(value >> shift, sorted(offsets))
