"""A mark: a point in a stream, as Spark keeps it in its checkpoint and shows it in a query's progress.

It is the JSON of Spark's Kafka source, the next offset of each partition, and beside the topics, under a name that no
topic can have, what else must survive a restart:

    {"orders": {"0": 23, "1": 7}, "$": {"ids": {"orders": "6f1e..."}, "skipped": {"orders": {"0": 12}}}}

    ids      the topics' ids, so that one that was deleted and made anew is not taken for the old one
    skipped  offsets that retention had removed before they were read, where the reader was told to go on
    first    on the mark that a stream begins with: whether it begins with whatever is the earliest
    began    on a batch's end: where that batch began, unless it was at the end of the one before

What a query's progress shows as the latest offset is no mark, but has the same form. Beside the topics it says what
Spark lets a source in Python say nowhere else: which source it is, and how far behind the batch has ended.

Spark does not keep the mark that a stream begins with. After a crash in the first batch it asks for it again, and
"latest" would by then be later than the batch that is repeated: its rows would be lost. It does keep the batch's
end, and `began` there says where it began. The same holds of a batch that began with new partitions or behind a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.values import TopicPartition
from headrace.spark.option.place import NOTE

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    offsets: Positions
    ids: Mapping[str, str] = field(default_factory=dict)
    skipped: Positions = field(default_factory=dict)
    is_first: bool = False
    is_earliest: bool = False
    began: Positions | None = None


def write_mark(mark: Mark) -> dict[str, Any]:
    note: dict[str, Any] = {}
    if mark.ids:
        note["ids"] = dict(sorted(mark.ids.items()))
    if mark.skipped:
        note["skipped"] = write_positions(mark.skipped)
    if mark.is_first:
        note["first"] = "earliest" if mark.is_earliest else "chosen"
    if mark.began is not None:
        note["began"] = write_positions(mark.began)
    return write_positions(mark.offsets) | ({NOTE: note} if note else {})


def read_mark(document: Mapping[str, Any]) -> Mark:
    note = document.get(NOTE, {})
    first = note.get("first")
    return Mark(
        offsets=read_positions(document),
        ids=note.get("ids", {}),
        skipped=read_positions(note.get("skipped", {})),
        is_first=first is not None,
        is_earliest=first == "earliest",
        began=read_positions(note["began"]) if "began" in note else None,
    )


def write_positions(positions: Positions) -> dict[str, Any]:
    """By topic and partition, in one order whatever the mapping's: Spark compares the text."""
    document: dict[str, Any] = {}
    for at in sorted(positions):
        document.setdefault(at.topic, {})[str(at.partition)] = positions[at]
    return document


def read_positions(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The offsets of a mark or of a part of one, also of one that a query's progress shows."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        if topic != NOTE
        for partition, offset in partitions.items()
    }


def behind_latest(consumed: Positions, ends: Positions) -> dict[str, str]:
    """How far a batch's end lies behind the ends of its partitions, under the names of Spark's Kafka source."""
    if not ends:
        return {}
    behind = [max(end - consumed.get(at, 0), 0) for at, end in ends.items()]
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def fair_shares(waiting: Positions, limit: int) -> dict[TopicPartition, int]:
    """So many offsets for each partition, at most `limit` together.

    Every partition gets the same, and what one does not need goes to the others: a long backlog in one does not hold
    up the rest. Where there are fewer offsets than partitions, the longest backlogs come first, so that all get
    their turn.
    """
    shares = dict.fromkeys(waiting, 0)
    hungry = sorted((at for at, count in waiting.items() if count > 0), key=lambda at: (waiting[at], at))
    left = min(limit, sum(waiting[at] for at in hungry))
    while hungry and left > 0:
        # The shortest backlog first: once it is served, the others share what it left.
        share = left // len(hungry)
        if share == 0:
            for at in hungry[::-1][:left]:
                shares[at] += 1
            return shares
        at = hungry.pop(0)
        shares[at] = min(share, waiting[at])
        left -= shares[at]
    return shares


def topics_of(ats: Iterable[TopicPartition]) -> list[str]:
    return sorted({at.topic for at in ats})
