"""How far a log was compacted, and when: the file `compacted` of a partition.

It saves work and nothing else. Without it, or with an older one, more is taken for dirty and tombstones stay longer;
what it must never do is speak of offsets that were written after it. So a truncation lowers it before it cuts.

When a tombstone was first compacted is not written into its batch: passes go up the log, so one list of
"up to this offset, at this time" says it for all of them.
"""

from collections.abc import Sequence
from itertools import takewhile

import msgspec

from headrace.host.disk import Disk, read_file, write_atomically
from headrace.model.ids import Offset
from headrace.wire.crc import crc32c

NAME = "compacted"

# Passes within this part of delete.retention.ms are taken for one, at the end of it: the list has an end.
_GRANULES = 16


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """Everything below `upto`, and not below that of the pass before, was first compacted at a time."""

    upto: int
    at_ms: int
    removable_count: int  # tombstones, and markers of transactions of which nothing is left, that are there still


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    # Of every key below it no message is left but the last one.
    upto: int = 0
    # Those that hold something which has to go later, oldest first. Both numbers rise.
    passes: tuple[Pass, ...] = ()

    def expired_upto(self, *, delete_retention_ms: int, now_ms: int) -> Offset:
        """Below it tombstones have been kept for long enough."""
        expired = takewhile(lambda one: one.at_ms + delete_retention_ms <= now_ms, self.passes)
        return Offset(max((one.upto for one in expired), default=0))

    def has_expired(self, *, delete_retention_ms: int, now_ms: int) -> bool:
        upto = self.expired_upto(delete_retention_ms=delete_retention_ms, now_ms=now_ms)
        return any(one.removable_count for one in self.passes if one.upto <= upto)

    def after(self, upto: Offset, counts: Sequence[int], *, delete_retention_ms: int, now_ms: int) -> "Compacted":
        """The state after a pass. `counts` says what is left to be removed in each earlier pass, and in this one."""
        passes = [
            Pass(one.upto, one.at_ms, count) for one, count in zip(self.passes, counts[:-1], strict=True) if count
        ]
        if counts[-1]:
            granule_ms = max(delete_retention_ms // _GRANULES, 1)
            new = Pass(upto, -(-now_ms // granule_ms) * granule_ms, counts[-1])
            if passes and passes[-1].at_ms >= new.at_ms:
                # In the same granule, or the wall clock was set back.
                old = passes.pop()
                new = Pass(upto, old.at_ms, old.removable_count + new.removable_count)
            passes.append(new)
        return Compacted(upto=max(upto, self.upto), passes=tuple(passes))

    def lowered(self, end: Offset) -> "Compacted":
        """The state of a log that was cut at an offset."""
        kept = [msgspec.structs.replace(one, upto=min(one.upto, end)) for one in self.passes]
        return Compacted(upto=min(self.upto, end), passes=tuple(kept))


def read_compacted(disk: Disk, directory: str) -> Compacted:
    """The state as it was last saved. Nothing was ever compacted where it is not there, or damaged. Blocks."""
    path = f"{directory}/{NAME}"
    if not disk.exists(path):
        return Compacted()
    head, _, body = read_file(disk, path).partition(b"\n")
    if head != b"%08x" % crc32c(body):
        return Compacted()
    return msgspec.json.decode(body, type=Compacted)


def save_compacted(disk: Disk, directory: str, state: Compacted) -> None:
    """Blocks."""
    body = msgspec.json.encode(state)
    write_atomically(disk, directory, NAME, b"%08x\n" % crc32c(body) + body)


def lower_compacted(disk: Disk, directory: str, end: Offset) -> None:
    """Before a log is cut: what is written at these offsets from now on was never compacted. Blocks."""
    if disk.exists(f"{directory}/{NAME}"):
        save_compacted(disk, directory, read_compacted(disk, directory).lowered(end))
