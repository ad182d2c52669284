"""From the journal of a log to what happened to its messages: events, counted, with the age that messages had then.

    sent           messages that were stored, in the minutes of their own times; their bytes
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
from headrace.spark.journal.entry import MINUTES_COLUMN
from headrace.spark.journal.minute import MINUTE_MS
from headrace.spark.pipeline.sent_time import SentTimes, Span
from headrace.wire.group_entry import read_commit
from headrace.wire.queue_entry import EntryKind, read_entry

EVENT_SCHEMA = (
    "minute bigint, name string, group string, event string, partition int, offset bigint, "
    "messages bigint, bytes bigint, ageMs bigint"
)
_ARROW = pa.schema(
    [
        ("minute", pa.int64()),  # since 1970
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
    "baseTimestamp timestamp, maxTimestamp timestamp, isControl boolean, controlKind int, controlValue binary, "
    f"{MINUTES_COLUMN}"
)

EVENTS = {
    EntryKind.LEASED: "leased",
    EntryKind.ACKED: "acked",
    EntryKind.TXN_ACKED: "acked",  # of transactions that abort, too: their end is another entry
    EntryKind.RELEASED: "released",
    EntryKind.FAILED: "released",
    EntryKind.RETURNED: "released",
    EntryKind.REJECTED: "rejected",
    EntryKind.DEAD_LETTERED: "dead_lettered",
    EntryKind.MOVED: "moved",
    EntryKind.EXPIRED: "expired",
    EntryKind.DROPPED: "dropped",
}
SENT, COMMITTED = "sent", "committed"
TICK = "tick"  # not an event of the log: the clock's
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
    __slots__ = ("bytes", "messages", "offset")

    def __init__(self) -> None:
        self.messages = self.bytes = 0
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
        self._add_sent(at.topic, row["minutes"], row["sizeBytes"])

    def _add_sent(self, name: str, minutes: list[dict[str, Any]], size: int) -> None:
        """A batch's bytes are shared out by the number of messages that each of its minutes has."""
        left = sum(minute["messages"] for minute in minutes)
        for minute in minutes:
            start_ms, count = minute["startMs"], minute["messages"]
            share = size * count // left
            at_ms = start_ms if start_ms is not None and start_ms >= 0 else None
            self._add(at_ms, name, None, SENT, None, count, share)
            size, left = size - share, left - count

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
                continue  # of a topic that is not rolled up, was deleted, or was made since the run began
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
        # A producer's clock may be in the future; a minute that is to come would stay open until then.
        at_ms = self._now_ms if at_ms is None else min(at_ms, self._now_ms)
        found = self._sums.setdefault(_Key(at_ms // MINUTE_MS, name, group, event, age_ms, partition), _Sum())
        found.messages += messages
        found.bytes += size
        return found

    def _given(self) -> pa.RecordBatch:
        rows = [
            (
                key.minute,
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
