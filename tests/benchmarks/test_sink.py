"""The sink looks like a broker to the client that is measured with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import generator
from benchmarks.process import Server, running_sink
from benchmarks.sink import TOPIC, fetch_answer, prebuilt_batch

from headrace.wire.kafka.records import decode_batch

SIZE_BYTES = 100


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_sink(tmp_path_factory.mktemp("sink"), SIZE_BYTES) as started:
        yield started


def test_every_produced_message_is_acknowledged(sink: Server) -> None:
    sent = generator.produce(sink.address, TOPIC, "--messages", "3000", "--size", str(SIZE_BYTES))
    assert (sent.messages, sent.failed) == (3000, 0)


def test_an_idempotent_producer_is_acknowledged_too(sink: Server) -> None:
    sent = generator.produce(sink.address, TOPIC, "--messages", "3000", "--idempotent")
    assert (sent.messages, sent.failed) == (3000, 0)


def test_a_consumer_gets_messages_without_end_and_of_the_size_asked_for(sink: Server) -> None:
    read = generator.consume(sink.address, TOPIC, "--messages", "50000")
    assert read.messages_total >= 50_000
    assert read.bytes_total == read.messages_total * SIZE_BYTES


@pytest.mark.parametrize("size_bytes", [1, 100, 1024, 10_240, 2_000_000])
def test_a_prebuilt_batch_is_as_full_as_the_client_makes_them(size_bytes: int) -> None:
    records = decode_batch(prebuilt_batch(size_bytes))
    assert {len(record.value or b"") for record in records} == {size_bytes}
    assert 1 <= len(records) <= 10_000


@pytest.mark.parametrize("version", [4, 11, 12, 13, 16, 18])
def test_the_place_of_the_offset_in_an_answer_is_the_start_of_its_batch(version: int) -> None:
    batch = prebuilt_batch(SIZE_BYTES)
    answer, position = fetch_answer(version, batch)
    assert answer[position : position + len(batch)] == batch


def test_a_process_that_does_not_start_is_reported_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        Server(("python3", "-m", "no_such_module"), tmp_path / "log")
