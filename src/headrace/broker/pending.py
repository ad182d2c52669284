"""What is on its way into a partition, and what is promised to those who sent it."""

from typing import NamedTuple

from headrace.broker.promise import Promise
from headrace.log.partition_log import Incoming
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import Marker


class Appended(NamedTuple):
    """Where a send went."""

    base_offset: Offset
    last_offset: Offset
    append_time_ms: int  # -1 unless the topic stamps messages on arrival
    start_offset: Offset


class Pending(NamedTuple):
    """A send that has arrived and is not written yet."""

    batches: list[Incoming]
    promise: Promise[Appended]
    is_verified: bool = False  # the coordinator has confirmed that its transaction may write here


class PendingMarker(NamedTuple):
    """The end of a transaction, likewise."""

    batch: Incoming
    marker: Marker
    is_bumped: bool
    promise: Promise[Appended]


class Promised(NamedTuple):
    """A send that is written, and answered once everything below `end` is committed."""

    end: Offset
    promise: Promise[Appended]
    answer: Appended
