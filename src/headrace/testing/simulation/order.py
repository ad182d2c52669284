"""Sets of logs in the order of their ids, for as long as the product iterates one.

`log/commit.py` syncs the logs of a journal file in the order of a set, which is that of their addresses in memory: one
seed would give another disk in each run. Remove this module once those logs are sorted there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.log.partition_log import PartitionLog


@contextmanager
def logs_in_order() -> Iterator[None]:
    """Hash logs by their ids, which are the seed's, while a run lasts."""
    PartitionLog.__hash__ = _hash_of_id  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del PartitionLog.__hash__


def _hash_of_id(log: PartitionLog) -> int:
    return hash(log.id)
