"""The report about Spark says what was measured; its messages are what it says they are."""

from benchmarks import spark
from benchmarks.spark_data import DOCUMENTS, RANDOM, SIZE_BYTES, compressed_share, messages, random_messages
from benchmarks.spark_measured import MeasuredLatency, MeasuredMemory, MeasuredSpark


def test_each_way_is_shown_beside_its_rival_turn_by_turn() -> None:
    memory = MeasuredMemory(jvm_bytes=900 << 20, worker_bytes=200 << 20, workers=4)
    seconds = {
        "source_to_noop": [2.0, 1.0, 2.0],
        "parquet_to_noop": [1.0, 1.0, 1.5],
        "random_source_to_noop": [4.0, 5.0, 4.0],
        "random_parquet_to_noop": [2.0, 2.0, 2.0],
        "source_to_delta": [4.0, 4.0, 4.0],
        "parquet_to_parquet": [4.0, 5.0, 6.0],
    }
    measured = MeasuredSpark(
        rows=1_000_000,
        seconds=seconds,
        latencies={"topic": MeasuredLatency(count=60, p50_ms=250.4, p95_ms=400.0, max_ms=512.0)},
        memory=dict.fromkeys(seconds, memory),
        start_s=6.25,
    )
    report = spark.report(measured, {"snappy": 0.64})
    assert report.rows[:2] == [
        ["source → noop", "500,000", "0.75", "0.50 to 1.00", "Parquet → noop", "900", "200"],
        ["Parquet → noop", "1,000,000", "", "", "", "900", "200"],
    ]
    assert [(goal.value, goal.is_met) for goal in report.goals] == [(0.75, False), (0.5, False), (1.25, True)]
    assert "compression leaves 64% of a value by snappy of documents" in report.notes[0]
    assert "to a topic: p50 250 ms, p95 400 ms, at most 512 ms (60 messages)" in report.notes[-1]


def test_messages_are_of_one_size_and_neither_empty_nor_noise() -> None:
    found = list(messages(500))
    assert {len(value) for _, value in found} == {SIZE_BYTES}
    assert len({key for key, _ in found}) > 100
    assert all(0.3 < share < 0.8 for share in compressed_share(DOCUMENTS).values())
    assert found == list(messages(500))


def test_random_messages_are_all_different_and_cannot_be_compressed() -> None:
    """Parquet is quickest with these: a ratio from documents alone would hide that."""
    found = list(random_messages(500))
    assert {len(value) for _, value in found} == {SIZE_BYTES}
    assert len({value for _, value in found}) == len(found)
    assert all(share > 0.99 for share in compressed_share(RANDOM).values())
