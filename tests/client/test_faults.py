"""The client against a broker that misbehaves."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.client.scripted import Fault, Raw, Script, scripted

from headrace.client.errors import ConnectionLostError, UnreachableError
from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.model.address import Address
from headrace.model.batch import read_header
from headrace.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    HeadraceError,
    InvalidPartitionsError,
    NotLeaderError,
    OffsetOutOfRangeError,
    TimedOutError,
    UnknownTopicError,
    UnsupportedError,
)
from headrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.kafka.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from headrace.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from headrace.wire.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.wire.kafka.records import Record, encode_batch, encode_control_batch

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID, CREATE_PARTITIONS = 0, 1, 3, 18, 22, 37
QUICK = ClientConfig(deadline_ms=5_000, retry_pause_ms=1, retry_pause_ms_max=5)
AT = TopicPartition("orders", 0)


def produced(code: int = 0, offset: int = 0, message: str | None = None) -> ProduceResponse:
    part = PartitionProduceResponse(index=0, error_code=code, base_offset=offset, error_message=message)
    return ProduceResponse(responses=(TopicProduceResponse(name="orders", partition_responses=(part,)),))


def fetched(records: bytes | bytearray = b"", *, code: int = 0, start: int = 0, end: int = 100) -> FetchResponse:
    part = PartitionData(
        partition_index=0, error_code=code, high_watermark=end, log_start_offset=start, records=bytes(records)
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=(part,)),))


def in_turn(*answers: Any) -> Script:
    """Each answer once, and the last one from then on."""
    left: Iterator[Any] = iter(answers[:-1])
    return lambda request: next(left, answers[-1])


def run(
    scripts: dict[int, Script],
    work: Callable[[StreamClient], Any],
    *,
    config: ClientConfig = QUICK,
    partition_count: int = 1,
) -> tuple[Any, list[tuple[int, Any]], int]:
    async def main() -> tuple[Any, list[tuple[int, Any]], int]:
        async with (
            scripted(scripts, partition_count=partition_count) as broker,
            StreamClient([broker.address], config=config) as client,
        ):
            return await work(client), broker.requests, broker.connection_count

    return asyncio.run(main())


def sent_batches(requests: list[tuple[int, Any]]) -> list[bytes]:
    return [bytes(r.topic_data[0].partition_data[0].records) for key, r in requests if key == PRODUCE]


def test_a_lost_answer_is_retried_with_the_same_bytes_over_a_new_connection() -> None:
    script = {PRODUCE: in_turn(Fault.CLOSE, produced(offset=5))}
    result, requests, connections = run(script, lambda client: client.produce("orders", [Outgoing(b"tea")]))
    assert result[0].base_offset == 5
    first, second = sent_batches(requests)
    assert first == second
    assert read_header(first).producer_id == 7
    assert read_header(first).base_sequence == 0
    assert connections == 2


def test_sequences_go_on_from_batch_to_batch() -> None:
    async def work(client: StreamClient) -> None:
        await client.produce("orders", [Outgoing(b"one"), Outgoing(b"two")])
        await client.produce("orders", [Outgoing(b"three")])

    _, requests, _ = run({PRODUCE: in_turn(produced())}, work)
    assert [read_header(batch).base_sequence for batch in sent_batches(requests)] == [0, 2]


def test_after_an_unclear_end_the_producer_begins_anew() -> None:
    """What became of its last sequence is unknown, so nothing may follow it under the same identity."""

    async def work(client: StreamClient) -> None:
        with pytest.raises(TimedOutError):
            await client.produce("orders", [Outgoing(b"one")])
        await client.produce("orders", [Outgoing(b"two")])

    script = {PRODUCE: in_turn(Fault.SILENCE, produced())}
    _, requests, _ = run(script, work, config=ClientConfig(deadline_ms=100, retry_pause_ms=1))
    assert [read_header(batch).base_sequence for batch in sent_batches(requests)] == [0, 0]
    assert sum(key == INIT_PRODUCER_ID for key, _ in requests) == 2


def test_a_producer_that_the_broker_forgot_takes_a_new_identity_and_sends_again() -> None:
    script = {PRODUCE: in_turn(produced(59), produced(offset=3))}
    result, requests, _ = run(script, lambda client: client.produce("orders", [Outgoing(b"tea")]))
    assert result[0].base_offset == 3
    assert sum(key == INIT_PRODUCER_ID for key, _ in requests) == 2


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    def answer(request: Any) -> ProduceResponse:
        header = read_header(request.topic_data[0].partition_data[0].records)
        return produced(10) if header.record_count > 2 else produced()

    result, _, _ = run(
        {PRODUCE: answer}, lambda client: client.produce("orders", [Outgoing(b"%d" % n) for n in range(5)])
    )
    assert sum(batch.message_count for batch in result) == 5


def test_one_message_that_is_too_large_is_refused_in_the_brokers_words() -> None:
    with pytest.raises(BatchTooLargeError, match="orders-0: at most 10 bytes"):
        run(
            {PRODUCE: in_turn(produced(10, message="at most 10 bytes"))},
            lambda client: client.produce("orders", [Outgoing(b"x")]),
        )


def test_another_leader_is_asked_for_and_found() -> None:
    script = {PRODUCE: in_turn(produced(6), produced(6), produced(offset=9))}
    result, requests, _ = run(script, lambda client: client.produce("orders", [Outgoing(b"tea")]))
    assert result[0].base_offset == 9
    assert sum(key == METADATA for key, _ in requests) == 3


def test_a_leader_that_never_comes_is_reported_at_the_deadline_as_what_it_was() -> None:
    with pytest.raises(NotLeaderError):
        run(
            {PRODUCE: in_turn(produced(6))},
            lambda client: client.produce("orders", [Outgoing(b"tea")]),
            config=ClientConfig(deadline_ms=50, retry_pause_ms=5),
        )


def test_silence_ends_at_the_deadline_with_the_address() -> None:
    with pytest.raises(TimedOutError, match=r"127\.0\.0\.1:\d+ did not answer Fetch"):
        run(
            {FETCH: in_turn(Fault.SILENCE)},
            lambda client: client.fetch({AT: 0}, wait_ms=0),
            config=ClientConfig(deadline_ms=50),
        )


def test_an_unknown_topic_is_looked_up_twice_and_then_reported() -> None:
    def metadata(request: Any) -> MetadataResponse:
        return MetadataResponse(
            topics=tuple(MetadataResponseTopic(error_code=3, name=t.name) for t in request.topics or ())
        )

    async def work(client: StreamClient) -> None:
        with pytest.raises(UnknownTopicError, match="headrace topic create"):
            await client.produce("absent", [Outgoing(b"tea")])

    _, requests, _ = run({METADATA: metadata}, work)
    assert sum(key == METADATA for key, _ in requests) == 2


def test_a_partition_that_is_not_there_is_refused_before_anything_is_sent() -> None:
    async def work(client: StreamClient) -> None:
        with pytest.raises(InvalidPartitionsError, match="has 2 partitions"):
            await client.produce("orders", [Outgoing(b"tea", partition=2)])
        with pytest.raises(InvalidPartitionsError):
            await client.fetch({TopicPartition("orders", 2): 0})

    _, requests, _ = run({}, work, partition_count=2)
    assert not any(key in (PRODUCE, FETCH) for key, _ in requests)


def test_an_offset_out_of_range_carries_the_logs_own_offsets() -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        run({FETCH: in_turn(fetched(code=1, start=40, end=60))}, lambda client: client.fetch({AT: 7}))
    assert (caught.value.start, caught.value.end) == (40, 60)


def test_what_lies_before_the_position_control_batches_and_a_cut_tail_are_left_out() -> None:
    records = (
        encode_batch([Record(1, None, b"%d" % n) for n in (10, 11, 12)], base_offset=10)
        + encode_control_batch(100, b"private", timestamp_ms=2, base_offset=13)
        + encode_batch([Record(3, None, b"14")], base_offset=14)
        + encode_batch([Record(3, None, b"15")], base_offset=15)[:-1]
    )
    (part,), _, _ = run({FETCH: in_turn(fetched(records))}, lambda client: client.fetch({AT: 11}))
    assert [(message.offset, message.value) for message in part.messages] == [(11, b"11"), (12, b"12"), (14, b"14")]
    assert part.next_offset == 15


def test_a_control_batch_alone_moves_the_position_on() -> None:
    records = encode_control_batch(101, b"private", timestamp_ms=2, base_offset=4)
    (part,), _, _ = run({FETCH: in_turn(fetched(records))}, lambda client: client.fetch({AT: 4}))
    assert part.messages == []
    assert part.next_offset == 5


def test_a_damaged_batch_is_never_handed_out() -> None:
    records = encode_batch([Record(1, None, b"tea")], base_offset=3)
    records[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="orders-0 sent a damaged batch at offset 3"):
        run(
            {FETCH: in_turn(fetched(records))},
            lambda client: client.fetch({AT: 3}),
            config=ClientConfig(deadline_ms=20, retry_pause_ms=5),
        )


def test_an_old_broker_is_spoken_to_in_the_version_that_it_knows() -> None:
    offered = tuple(ApiVersion(api_key=key, min_version=0, max_version=top) for key, top in ((0, 7), (3, 4), (22, 1)))
    versions = in_turn(
        Raw(b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23\x00\x00\x00\x00"), ApiVersionsResponse(api_keys=offered)
    )
    result, _, _ = run(
        {API_VERSIONS: versions, PRODUCE: in_turn(produced(offset=1))},
        lambda client: client.produce("orders", [Outgoing(b"tea")]),
    )
    assert result[0].base_offset == 1


def test_an_api_that_the_broker_lacks_is_said_to_be_lacking() -> None:
    offered = (ApiVersion(api_key=3, min_version=0, max_version=4),)
    with pytest.raises(UnsupportedError, match="does not offer Fetch"):
        run({API_VERSIONS: in_turn(ApiVersionsResponse(api_keys=offered))}, lambda client: client.fetch({AT: 0}))


def test_a_server_that_is_no_broker_is_recognised() -> None:
    with pytest.raises(ConnectionLostError, match="is a Kafka listener there"):
        run(
            {API_VERSIONS: in_turn(Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"))}, lambda client: client.admin.list_topics()
        )


def test_an_answer_that_is_no_message_breaks_the_call_and_not_the_client() -> None:
    garbage = Raw(b"\x00\x00\x00\x06\x00\x00\x00\x02\xff\xff")
    with pytest.raises(HeadraceError):
        run({METADATA: in_turn(garbage)}, lambda client: client.admin.list_topics())


@pytest.mark.parametrize("there", [3, 5])
def test_partitions_whose_answer_was_lost_count_as_made_if_they_are_there(there: int) -> None:
    refusal = CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name="orders", error_code=37),))
    scripts = {CREATE_PARTITIONS: in_turn(Fault.CLOSE, refusal)}

    async def work(client: StreamClient) -> int:
        return len((await client.admin.create_partitions("orders", 3)).partitions)

    if there == 3:
        assert run(scripts, work, partition_count=there)[0] == 3
    else:
        with pytest.raises(InvalidPartitionsError):
            run(scripts, work, partition_count=there)


def test_nobody_at_any_address_names_them_all() -> None:
    async def main() -> None:
        async with StreamClient("127.0.0.1:1,127.0.0.1:2"):
            pass

    with pytest.raises(UnreachableError, match=r"none of 127\.0\.0\.1:1, 127\.0\.0\.1:2 answers"):
        asyncio.run(main())


def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    async def main() -> str | None:
        async with scripted({}) as broker, StreamClient([Address("127.0.0.1", 1), broker.address]) as client:
            return (await client.admin.cluster()).cluster_id

    assert asyncio.run(main()) == "scripted"
