"""Which files of a partition's directory are its segments. Blocks.

Where a segment was cleaned, the list of cleaned segments decides: files that it replaced, and rewritten ones that a
crash did not let become part of it, are moved away. The checkpoint decides what must be there: each offset at which it
lists a segment has that segment, or a cleaned one that stands for it, or the partition has lost messages and is refused
before any file is touched. So a rewrite that nothing lists is never damage, and nothing goes because a list is missing
(failure row 20).
"""

import re
from collections.abc import Iterable

from headrace.host.disk import Disk
from headrace.log.checkpoint import Checkpoint
from headrace.log.cleaned import NAME as CLEANED_NAME
from headrace.log.cleaned import Cleaned, read_cleaned
from headrace.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIMEINDEX_SUFFIX, Segment, segment_name
from headrace.log.trash import Trash
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset

_NAME = re.compile(r"(?P<base>\d{20})(\.(?P<generation>\d+))?\.(log|index|timeindex)")

# Base offset, and the generation of a cleaned segment.
_Key = tuple[int, int | None]


def find_segments(disk: Disk, directory: str, trash: Trash, point: Checkpoint, *, now_ms: int) -> list[Segment]:
    """The segments in order, each with its size and its end, but for the end of the last one."""
    names = disk.list_directory(directory)
    listed = read_cleaned(disk, directory)
    found = {_key(name) for name in names if name.endswith(LOG_SUFFIX) and _NAME.fullmatch(name)}
    entries: dict[_Key, Cleaned] = {(entry.base_offset, entry.generation): entry for entry in listed or ()}
    kept = _choose(directory, found, entries, point, was_listed=listed is not None)
    for key in sorted(found - kept, key=str):
        trash.take_segment(f"{directory}/{segment_name(*key)}")
    _remove_orphans(disk, directory, names, kept)
    segments: list[Segment] = []
    for key in sorted(kept, key=lambda key: key[0]):
        segment = Segment(directory, Offset(key[0]), index=None, created_ms=now_ms, cleaned=entries.get(key))
        segment.size = _size(disk, segment)
        if segments:
            segments[-1].next_offset = segment.base_offset
        segments.append(segment)
    return segments


def _choose(
    directory: str, found: set[_Key], entries: dict[_Key, Cleaned], point: Checkpoint, *, was_listed: bool
) -> set[_Key]:
    """The files that make up the log."""
    present = [entry for key, entry in entries.items() if key in found]
    plain = {
        key
        for key in found
        if key[1] is None and not any(entry.base_offset <= key[0] < entry.next_offset for entry in present)
    }
    kept: set[_Key] = plain | {(entry.base_offset, entry.generation) for entry in present}
    for key in found - kept:
        is_needed = point.segments is None or key[0] in point.segments
        if not was_listed and key[1] is not None and (key[0], None) not in plain and is_needed:
            raise _missing(f"{directory}/{CLEANED_NAME}", f"a list with {segment_name(*key)}{LOG_SUFFIX}")
    first = min((base for base, _ in kept), default=None)
    for key, entry in entries.items():
        # What is older than all that is there, retention took, as far as an older version's checkpoint can say.
        is_expired = first is not None and key[0] <= first
        if point.segments is not None:
            is_expired = entry.next_offset <= point.log_start
        if key not in found and not is_expired:
            raise _missing(f"{directory}/{segment_name(*key)}{LOG_SUFFIX}", "a cleaned segment")
    bases = {base for base, _ in kept}
    for base in point.segments or ():
        if base not in bases and not any(one.base_offset <= base < one.next_offset for one in present):
            raise _missing(f"{directory}/{segment_name(base)}{LOG_SUFFIX}", "a segment")
    return kept


def _missing(file: str, expected: str) -> CorruptLogError:
    return CorruptLogError(file=file, position=0, expected=expected, found="no file", what="content")


def _size(disk: Disk, segment: Segment) -> int:
    file = disk.open(segment.path)
    try:
        size = file.size()
    finally:
        file.close()
    if size < segment.gap_bytes:
        raise CorruptLogError(
            file=segment.path,
            position=size,
            expected=f"{segment.gap_bytes} bytes",
            found=f"{size} bytes",
            what="content",
        )
    return size


def _remove_orphans(disk: Disk, directory: str, names: Iterable[str], kept: set[_Key]) -> None:
    """Remove indexes whose log is gone: a crash came in the middle of a removal."""
    for name in names:
        is_index = name.endswith((INDEX_SUFFIX, TIMEINDEX_SUFFIX)) and _NAME.fullmatch(name)
        if is_index and _key(name) not in kept and disk.exists(f"{directory}/{name}"):
            disk.remove(f"{directory}/{name}")


def _key(name: str) -> _Key:
    match = _NAME.fullmatch(name)
    assert match is not None
    return int(match["base"]), None if match["generation"] is None else int(match["generation"])
