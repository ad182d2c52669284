"""From the journal of a log to what happened to its messages: events, counted, with the age that messages had then.

    sent           messages that were stored; their bytes
    leased         handed out; the age is how long they waited, since they were sent, for this attempt
    acked          done; the age is the dwell time
    released, rejected, dead_lettered, expired, dropped, moved   what else became of them
    committed      a group's commit; the age is that of the newest message that it covers

Rows are added up within an Arrow batch, by minute, event and age, so that a million acknowledgements become some
thousand rows. Ages are kept to three digits, which is more than any percentile is worth. Pure but for the clock and
the look into the log, which are passed in.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from headrace.client.values import TopicPartition
from headrace.model.names import GROUPS_TOPIC
from headrace.spark.pipeline.sent_time import SentTimes, Span
from headrace.wire.group_entry import read_commit
from headrace.wire.queue_entry import EntryKind, read_entry

MINUTE_MS = 60_000

EVENT_SCHEMA = (
    "at timestamp, name string, group string, event string, partition int, offset bigint, "
    "messages bigint, bytes bigint, ageMs bigint"
)
_ARROW = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("group", pa.string()),
        ("event", pa.string()),
        ("partition", pa.int32()),  # of a commit
        ("offset", pa.int64()),  # of a commit
        ("messages", pa.int64()),  # commits, where it is one
        ("bytes", pa.int64()),
        ("ageMs", pa.int64()),
    ]
)
JOURNAL_COLUMNS = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, recordCount int, sizeBytes int, "
    "baseTimestamp timestamp, maxTimestamp timestamp, isControl boolean, controlKind int, controlValue binary"
)

EVENTS = {
    EntryKind.LEASED: "leased",
    EntryKind.ACKED: "acked",
    EntryKind.TXN_ACKED: "acked",  # of transactions that abort, too: their end is another entry
    EntryKind.RELEASED: "released",
    EntryKind.RETURNED: "released",
    EntryKind.REJECTED: "rejected",
    EntryKind.DEAD_LETTERED: "dead_lettered",
    EntryKind.MOVED: "moved",
    EntryKind.EXPIRED: "expired",
    EntryKind.DROPPED: "dropped",
}
SENT, COMMITTED = "sent", "committed"
EVENT_NAMES = (SENT, *dict.fromkeys(EVENTS.values()), COMMITTED)
_DIGITS = 1_000


class _Key(NamedTuple):
    minute: int
    name: str
    group: str | None
    event: str
    age_ms: int | None
    partition: int | None = None


class _Sum:
    __slots__ = ("at_ms", "bytes", "messages", "offset")

    def __init__(self) -> None:
        self.at_ms = self.messages = self.bytes = 0
        self.offset: int | None = None


class Events:
    """Takes journal rows, those of a partition in order, and gives events."""

    def __init__(self, sent: SentTimes, topics: Mapping[UUID, str], *, now_ms: int) -> None:
        self._sent = sent
        self._topics = topics
        self._now_ms = now_ms
        self._sums: dict[_Key, _Sum] = {}

    def take(self, journal: pa.RecordBatch) -> pa.RecordBatch:
        self._sums = {}
        for row in journal.to_pylist():
            at = TopicPartition(row["topic"], row["partition"])
            if not row["isControl"]:
                self._take_messages(at, row)
            elif row["controlKind"] is not None:
                self._take_entry(at, row["controlKind"], row["controlValue"] or b"")
        return self._given()

    def _take_messages(self, at: TopicPartition, row: dict[str, Any]) -> None:
        first_ms, last_ms = _milliseconds(row["baseTimestamp"]), _milliseconds(row["maxTimestamp"])
        if first_ms is not None:
            last_ms = first_ms if last_ms is None else max(first_ms, last_ms)
            self._sent.learn(at, Span(row["baseOffset"], row["lastOffset"], first_ms, last_ms))
        self._add(last_ms, at.topic, None, SENT, None, row["recordCount"], row["sizeBytes"])

    def _take_entry(self, at: TopicPartition, kind: int, value: bytes) -> None:
        if at.topic == GROUPS_TOPIC:
            self._take_commit(kind, value)
            return
        entry = read_entry(kind, value)
        event = None if entry is None else EVENTS.get(entry.kind)
        if entry is None or event is None:
            return
        for offset in entry.offsets:
            self._add(entry.wall_ms, at.topic, None, event, self._age(at, offset, entry.wall_ms), 1, 0)

    def _take_commit(self, kind: int, value: bytes) -> None:
        commit = read_commit(kind, value)
        if commit is None:
            return
        for one in commit.offsets:
            name = self._topics.get(one.topic_id)
            if name is None:
                continue  # of a topic that was deleted, or made since the run began
            at = TopicPartition(name, one.partition)
            age_ms = self._age(at, one.offset - 1, commit.wall_ms) if one.offset > 0 else None
            added = self._add(commit.wall_ms, name, commit.group, COMMITTED, age_ms, 1, 0, one.partition)
            added.offset = one.offset

    def _age(self, at: TopicPartition, offset: int, wall_ms: int) -> int | None:
        sent_ms = self._sent.find(at, offset)
        return None if sent_ms is None else rounded(max(wall_ms - sent_ms, 0))

    def _add(
        self,
        at_ms: int | None,
        name: str,
        group: str | None,
        event: str,
        age_ms: int | None,
        messages: int,
        size: int,
        partition: int | None = None,
    ) -> _Sum:
        # A producer's clock may be in the future; the watermark would follow it and everybody else would be late.
        at_ms = self._now_ms if at_ms is None else min(at_ms, self._now_ms)
        found = self._sums.setdefault(_Key(at_ms // MINUTE_MS, name, group, event, age_ms, partition), _Sum())
        found.at_ms = max(found.at_ms, at_ms)
        found.messages += messages
        found.bytes += size
        return found

    def _given(self) -> pa.RecordBatch:
        rows = [
            (
                one.at_ms * 1000,
                key.name,
                key.group,
                key.event,
                key.partition,
                one.offset,
                one.messages,
                one.bytes,
                key.age_ms,
            )
            for key, one in self._sums.items()
        ]
        columns = zip(*rows, strict=True) if rows else ([] for _ in _ARROW)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
        )


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def rounded(age_ms: int) -> int:
    """To three digits, towards zero."""
    step = 1
    while age_ms // step >= _DIGITS:
        step *= 10
    return age_ms // step * step
