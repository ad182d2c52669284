"""What a partition knows about its own files without reading them.

Everything below the recovery point was synced before this file was written, so whatever is wrong below it is damage,
and whatever is wrong above it is a tail that a crash tore.
"""

import msgspec

from headrace.model.errors import CorruptLogError
from headrace.wire.crc import crc32c

NAME = "checkpoint"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    log_start: int = 0
    recovery_point: int = 0  # offset
    recovery_segment: int = 0  # base offset of the segment that holds the recovery point
    recovery_position: int = 0  # byte of that segment
    # Journal records up to this sequence are in the segments, or were truncated away: they must not be replayed.
    journal_sequence: int = 0
    # The node's clean-shutdown mark that this was written under; empty while the log is in use.
    shutdown_id: str = ""
    # Largest timestamp in the recovery segment up to the recovery point, which its sparse index knows only roughly.
    max_timestamp_ms: int = -1
    index_count: int = 0  # entries in that segment's index
    # Every fold has a durable snapshot that covers all entries below it; -1 where no fold has one.
    snapshot_offset: int = -1
    # Leader epochs and the first offset of each, below the recovery point. In this file and not beside it: a table that
    # was trimmed or cut belongs to the start and the end of one checkpoint and no other. None where nobody noted them.
    epochs: list[tuple[int, int]] | None = None
    # Base offsets of the segments: of those up to the recovery point, and of those behind it whose names were synced
    # since. A segment leaves this list before its file is removed, so one that is listed and not there was lost, and
    # all that comes before a listed one was synced. None where an older version wrote the checkpoint.
    segments: list[int] | None = None


def encode(checkpoint: Checkpoint) -> bytes:
    body = msgspec.json.encode(checkpoint)
    return b"%08x\n" % crc32c(body) + body + b"\n"


def decode(data: bytes, file: str) -> Checkpoint:
    head, _, rest = data.partition(b"\n")
    body = rest.rstrip(b"\n")
    found = b"%08x" % crc32c(body)
    if head != found:
        raise CorruptLogError(
            file=file, position=0, expected=head.decode("ascii", "replace"), found=found.decode(), what="checksum"
        )
    return msgspec.json.decode(body, type=Checkpoint)
