"""From ranges of offsets to tasks.

Every task beyond the first costs a micro-batch 25 to 90 ms, so partitions are packed: into as many tasks as there are
cores, and into fewer where there is little to read. A partition stays in one task, and with it the order of its rows,
unless more tasks were asked for than there are partitions, or the reader says that it may be cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headrace.spark.source.reading import Range

# What is below this is read by one task sooner than another one would have started.
TASK_OFFSETS_MIN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    cores: int
    tasks_min: int | None = None
    tasks_max: int | None = None
    task_offsets_max: int | None = None
    # Whether a partition may be cut without being asked to, where there are more cores than partitions.
    may_cut: bool = False


def plan_tasks(ranges: Sequence[Range], limits: TaskLimits) -> list[list[Range]]:
    """Each task's ranges, in order of topic, partition and offset."""
    ranges = [one for one in ranges if one.end > one.start]
    total = sum(map(_size, ranges))
    if not total:
        return []
    count = _task_count(total, limits)
    size_max = limits.task_offsets_max or total
    if len(ranges) < count and (limits.may_cut or limits.tasks_min is not None):
        size_max = min(size_max, -(-total // count))
    pieces = [piece for one in ranges for piece in _cut(one, size_max)]
    tasks = _pack(pieces, count)
    while limits.task_offsets_max and max(map(_load, tasks)) > limits.task_offsets_max:
        count += 1
        tasks = _pack(pieces, count)
    return sorted(tasks, key=lambda task: _place(task[0]))


def _task_count(total: int, limits: TaskLimits) -> int:
    most = max(limits.tasks_max or limits.cores, 1)
    count = min(-(-total // TASK_OFFSETS_MIN), most)
    if limits.tasks_min is not None:
        count = max(count, min(limits.tasks_min, total))
    if limits.task_offsets_max is not None:
        count = max(count, -(-total // limits.task_offsets_max))
    return count


def _cut(one: Range, size_max: int) -> list[Range]:
    """Equal pieces, none larger than so much."""
    size = _size(one)
    count = -(-size // size_max)
    borders = [one.start + size * index // count for index in range(count + 1)]
    return [replace(one, start=start, end=end) for start, end in pairwise(borders)]


def _pack(pieces: list[Range], count: int) -> list[list[Range]]:
    """The largest piece first, each to the task that has least: never far from even."""
    tasks: list[list[Range]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [0] * len(tasks)
    for piece in sorted(pieces, key=lambda one: (-_size(one), _place(one))):
        index = loads.index(min(loads))
        tasks[index].append(piece)
        loads[index] += _size(piece)
    return [sorted(task, key=_place) for task in tasks]


def _size(one: Range) -> int:
    return one.end - one.start


def _load(task: list[Range]) -> int:
    return sum(map(_size, task))


def _place(one: Range) -> tuple[str, int, int]:
    return one.topic, one.partition, one.start
