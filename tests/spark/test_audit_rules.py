"""The audit's rules on rows made here: what is planted is found, and nothing else."""

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from headrace.spark.journal.entry import SCHEMA
from headrace.spark.pipeline import audit_delivery, audit_log
from headrace.spark.pipeline.audit_number import DOUBLED, LOST, OUT_OF_ORDER, find_faults
from headrace.wire.queue_entry import HEAD, NUMBER, EntryKind, encode_offsets

NUMBERED = "topic string, partition int, offset bigint, endOffset bigint, first bigint, last bigint"
PLACES = "topic string, partition int, start bigint, end bigint, isCleaned boolean"

Found = list[tuple[str, int, int, int]]


def found(findings: DataFrame) -> Found:
    rows = findings.orderBy("firstOffset", "fault").collect()
    return [(row["fault"], row["firstOffset"], row["lastOffset"], row["count"]) for row in rows]


# Numbers.


def numbered(spark: SparkSession, numbers: Sequence[int]) -> DataFrame:
    rows = [("t", 0, offset, offset, number, number) for offset, number in enumerate(numbers)]
    return spark.createDataFrame(
        rows, "topic string, partition int, offset long, endOffset long, first long, last long"
    )


def faults_of(spark: SparkSession, numbers: Sequence[int], *, is_gapless: bool = True) -> Found:
    rows = numbered(spark, numbers)
    return found(find_faults(rows, rule="r", scope=("topic",), whose=sf.lit("numbers"), is_gapless=sf.lit(is_gapless)))


def test_numbers_that_follow_one_another_are_no_finding(spark: SparkSession) -> None:
    assert faults_of(spark, [5, 6, 7, 8]) == []


def test_a_gap_is_a_loss_of_as_many_as_are_missing(spark: SparkSession) -> None:
    assert faults_of(spark, [1, 2, 6, 7]) == [(LOST, 2, 2, 3)]
    assert faults_of(spark, [1, 2, 6, 7], is_gapless=False) == []


def test_a_number_that_comes_again_is_doubled_and_not_out_of_order(spark: SparkSession) -> None:
    assert faults_of(spark, [1, 2, 3, 4, 2]) == [(DOUBLED, 4, 4, 1)]


def test_a_pair_that_changed_places_is_out_of_order_and_no_loss(spark: SparkSession) -> None:
    assert faults_of(spark, [1, 2, 4, 3, 5]) == [(OUT_OF_ORDER, 3, 3, 1)]


def test_several_faults_are_told_apart(spark: SparkSession) -> None:
    expected = [(LOST, 2, 2, 1), (DOUBLED, 4, 4, 1), (OUT_OF_ORDER, 6, 6, 1)]
    assert faults_of(spark, [1, 2, 4, 5, 5, 7, 6, 8]) == expected


# Logs.


def batch(base: int, count: int, **more: object) -> Row:
    """A row of a journal: a batch of messages, unless it is said to be something else."""
    row: dict[str, object] = {
        "topic": "t",
        "partition": 0,
        "baseOffset": base,
        "lastOffset": base + count - 1,
        "recordCount": count,
        "sizeBytes": 100,
        "baseTimestamp": None,
        "maxTimestamp": None,
        "producerId": None,
        "producerEpoch": None,
        "baseSequence": None,
        "isTransactional": False,
        "isControl": False,
        "controlKind": None,
        "controlValue": None,
    }
    return Row(**(row | more))


def sent(base: int, count: int, sequence: int, *, producer: int = 7, epoch: int = 0, **more: object) -> Row:
    return batch(base, count, producerId=producer, producerEpoch=epoch, baseSequence=sequence, **more)


def control(offset: int, kind: int, value: object = b"", **more: object) -> Row:
    return batch(offset, 1, isControl=True, controlKind=kind, controlValue=value, **more)


def looked_at(
    spark: SparkSession, rows: Sequence[Row], *, end: int, is_cleaned: bool = False
) -> tuple[DataFrame, DataFrame]:
    places = spark.createDataFrame([("t", 0, 0, end, is_cleaned)], PLACES)
    return audit_log.with_gaps(spark.createDataFrame(rows, SCHEMA), places), places


def test_control_entries_and_aborted_transactions_explain_offsets_without_a_message(spark: SparkSession) -> None:
    transactional = {"isTransactional": True}
    rows = [
        sent(0, 2, 0, **transactional),
        control(2, 1, producerId=7, producerEpoch=0, **transactional),
        sent(3, 3, 2, **transactional),
        batch(6, 1),
        control(7, 0, producerId=7, producerEpoch=1, **transactional),
        sent(8, 2, 0, epoch=1, **transactional),
    ]
    batches, places = looked_at(spark, rows, end=10)
    (counts,) = audit_log.count_kinds(batches).collect()
    assert {name: counts[name] for name in ("message", *audit_log.EXPLAINED)} == {
        "message": 3,
        "marker": 2,
        "entry": 0,
        "aborted": 3,
        "open": 2,
        "cleaned": 0,
    }
    assert found(audit_log.find_holes(batches, places)) == []
    assert found(audit_log.find_sequence_faults(batches)) == []


def test_a_hole_that_nothing_explains_is_lost_also_at_the_beginning_and_the_end(spark: SparkSession) -> None:
    batches, places = looked_at(spark, [batch(2, 3), batch(9, 1), batch(10, 4, recordCount=3)], end=16)
    assert found(audit_log.find_holes(batches, places)) == [
        (LOST, 0, 1, 2),
        (LOST, 5, 8, 4),
        (LOST, 10, 13, 1),
        (LOST, 14, 15, 2),
    ]


def test_holes_of_a_partition_that_is_cleaned_are_explained(spark: SparkSession) -> None:
    rows = [batch(2, 3), batch(9, 1), batch(10, 4, recordCount=3)]
    batches, places = looked_at(spark, rows, end=14, is_cleaned=True)
    (counts,) = audit_log.count_kinds(batches).collect()
    assert (counts["message"], counts["cleaned"]) == (7, 7)
    assert found(audit_log.find_holes(batches, places)) == []


def test_two_batches_with_the_same_offsets_are_doubled(spark: SparkSession) -> None:
    batches, _ = looked_at(spark, [batch(0, 3), batch(3, 3), batch(4, 2)], end=6)
    assert found(audit_log.find_overlaps(batches)) == [(DOUBLED, 4, 5, 2)]


def test_sequences_that_are_missing_doubled_or_swapped_are_found_for_each_producer(spark: SparkSession) -> None:
    rows = [
        *(sent(0, 2, 0), sent(2, 2, 2), sent(4, 2, 6)),  # 4 and 5 are missing
        *(sent(6, 3, 0, producer=8), sent(9, 3, 3, producer=8), sent(12, 3, 0, producer=8)),  # the first ones again
        *(sent(15, 1, 0, producer=9), sent(16, 1, 2, producer=9), sent(17, 1, 1, producer=9)),  # 1 comes late
        *(sent(18, 1, 5, producer=9, epoch=1), sent(19, 1, 6, producer=9, epoch=1)),  # begins where it begins
    ]
    batches, _ = looked_at(spark, rows, end=20)
    expected = [(LOST, 4, 5, 2), (DOUBLED, 12, 14, 3), (OUT_OF_ORDER, 17, 17, 1)]
    assert found(audit_log.find_sequence_faults(batches)) == expected


def test_sequences_that_wrap_are_no_finding(spark: SparkSession) -> None:
    top = 2**31
    rows = [sent(0, 5, top - 10), sent(5, 5, top - 5), sent(10, 5, 0), sent(15, 5, 5)]
    batches, _ = looked_at(spark, rows, end=20)
    assert found(audit_log.find_sequence_faults(batches)) == []


def test_sequences_that_went_with_cleaned_batches_are_no_loss(spark: SparkSession) -> None:
    rows = [sent(0, 2, 0), sent(10, 2, 10), sent(12, 2, 10)]
    batches, _ = looked_at(spark, rows, end=14, is_cleaned=True)
    assert found(audit_log.find_sequence_faults(batches)) == [(DOUBLED, 12, 13, 2)]


# Queues.


def entry(kind: EntryKind, body: bytes) -> tuple[int, bytes]:
    return int(kind), HEAD.pack(bytes(16), 0, 0) + body


def configured(guarantee: str) -> tuple[int, bytes]:
    return entry(EntryKind.CONFIGURED, b'{"guarantee":"%s"}' % guarantee.encode())


def leased(*offsets: int) -> tuple[int, bytes]:
    return entry(EntryKind.LEASED, NUMBER.pack(1000) + encode_offsets(offsets))


def acked(*offsets: int) -> tuple[int, bytes]:
    return entry(EntryKind.ACKED, encode_offsets(offsets))


def judged(spark: SparkSession, rows: Sequence[Row]) -> tuple[list[int], int]:
    """Which offsets were acknowledged without a lease, and how many could not be judged."""
    batches, _ = looked_at(spark, rows, end=rows[-1]["lastOffset"] + 1)
    judged = audit_delivery.judge(audit_delivery.told(batches)).persist()
    wrong = [offset for row in audit_delivery.find_undelivered(judged).collect() for offset in _offsets(row)]
    return sorted(wrong), judged.where("not isJudged").count()


def _offsets(row: Row) -> range:
    return range(row["firstOffset"], row["lastOffset"] + 1)


def queue_log(*entries: tuple[int, bytes] | int) -> list[Row]:
    """Numbers are batches of so many messages."""
    rows: list[Row] = []
    for one in entries:
        base = rows[-1]["lastOffset"] + 1 if rows else 0
        rows.append(batch(base, one) if isinstance(one, int) else control(base, *one))
    return rows


def test_what_was_acknowledged_without_a_lease_is_found(spark: SparkSession) -> None:
    log = queue_log(configured("at_least_once"), 5, leased(1, 2), acked(1, 2), acked(3), leased(4), acked(4, 5))
    assert judged(spark, log) == ([3, 5], 0)


def test_a_lease_after_the_acknowledgement_is_too_late(spark: SparkSession) -> None:
    assert judged(spark, queue_log(configured("exactly_once"), 1, acked(1), leased(1))) == ([1], 0)


def test_at_most_once_needs_no_lease(spark: SparkSession) -> None:
    log = queue_log(configured("at_most_once"), 2, acked(1), configured("at_least_once"), acked(2))
    assert judged(spark, log) == ([2], 0)


def test_what_lies_before_a_cleaned_part_cannot_be_judged(spark: SparkSession) -> None:
    whole = queue_log(configured("at_least_once"), 2, leased(1), acked(1), 1, acked(2), acked(5))
    assert judged(spark, whole) == ([2, 5], 0)
    cleaned = [row for row in whole if row["controlKind"] != int(EntryKind.LEASED)]
    assert [b["baseOffset"] - a["lastOffset"] for a, b in pairwise(cleaned)].count(2) == 1, "one lease is gone"
    assert judged(spark, cleaned) == ([5], 2)
