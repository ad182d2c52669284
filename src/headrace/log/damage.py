"""Where readers came by damage, since the node started.

A reader of a topic is refused at the damaged batch and served everywhere else, so the partition stays as it is; a
queue, which has to know every message, takes its partition offline instead. Each damaged place is logged once, not
once for every reader who comes by, and counts for as long as its segment is there.
"""

import logging
from collections.abc import Iterable

from headrace.log.partition_log import PartitionLog
from headrace.model.errors import CorruptLogError

log = logging.getLogger(__name__)

# A file that is garbage all over need not be told batch for batch.
_PLACES_MAX = 100


class Damage:
    def __init__(self) -> None:
        self._places: dict[str, set[int]] = {}  # positions by file

    def note(self, error: CorruptLogError) -> None:
        places = self._places.setdefault(error.file, set())
        if error.position in places or len(places) >= _PLACES_MAX:
            return
        places.add(error.position)
        log.error(
            "a reader came by damage; the messages there are not served",
            extra={
                "file": error.file,
                "position": error.position,
                "what": error.what,
                "expected": error.expected,
                "found": error.found,
            },
        )

    def among(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        """Those of these logs that are damaged and in use all the same."""
        if not self._places:
            return []
        return [one for one in logs if one.broken is None and any(s.path in self._places for s in one.segments)]
