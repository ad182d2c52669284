"""What the driver has found out before a write, for the tasks."""

from dataclasses import dataclass

from headrace.spark.sink.option import SinkOptions
from headrace.spark.sink.staging import StagingPlace
from headrace.spark.sink.target import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    options: SinkOptions
    names: frozenset[str]  # of the columns that are written
    shape: Shape | None  # of the topic that the options name
    staging: StagingPlace
