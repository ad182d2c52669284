"""A task of a read: the ranges of offsets that one worker process goes through."""

import os
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from headrace.spark.option.source import SourceOptions
from headrace.spark.session import CORES_VARIABLE
from headrace.spark.source.plan import TaskLimits, plan_tasks
from headrace.spark.source.reading import Range, ReadSettings

_MANY = 1_000_000


class Task(InputPartition):
    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def make_tasks(ranges: Sequence[Range], options: SourceOptions, *, may_cut: bool) -> list[InputPartition]:
    limits = TaskLimits(
        cores=_cores(),
        tasks_min=options.tasks_min,
        tasks_max=options.tasks_max,
        task_offsets_max=options.task_offsets_max,
        may_cut=may_cut,
    )
    return [Task(task) for task in plan_tasks(ranges, limits)]


def read_settings(options: SourceOptions) -> ReadSettings:
    return ReadSettings(
        servers=options.servers,
        isolation=options.isolation,
        fail_on_data_loss=options.fail_on_data_loss,
        fetch_bytes_max=options.client.fetch_bytes_max,
        client=options.client,
    )


def _cores() -> int:
    """This machine's, unless the session said otherwise; on a cluster nobody knows, and the amount of work decides."""
    said = os.environ.get(CORES_VARIABLE, "")
    if said.isdecimal():
        return int(said) or _MANY
    return os.cpu_count() or 1
