"""Produce and Fetch beyond the plain case."""

import logging
import struct
from uuid import UUID

import pytest
from tests.gateways.kafka.fake_broker import FakeBroker
from tests.gateways.kafka.harness import batch, connect, run, serving, until
from tests.gateways.kafka.requests import API_VERSIONS, fetch, produce

from headrace.gateways.kafka.errors import ErrorCode
from headrace.model.errors import DiskFullError, InvalidRecordError, OutOfOrderSequenceError
from headrace.testing.clock import SimulatedClock
from headrace.wire.kafka.messages import fetch as fetch_messages
from headrace.wire.kafka.messages import list_offsets, offset_for_leader_epoch
from headrace.wire.kafka.messages import produce as produce_messages


def one_topic() -> FakeBroker:
    broker = FakeBroker()
    broker.add("t")
    return broker


def only(response: produce_messages.ProduceResponse) -> produce_messages.PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


def test_what_is_produced_is_fetched_byte_for_byte_with_the_leaders_offset() -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            first, second = batch(b"first", count=3), batch(b"second")
            assert only(await client.ask(*produce(first))).base_offset == 0
            assert only(await client.ask(*produce(second))).base_offset == 3
            response = await client.ask(*fetch(0))
            records = bytes(response.responses[0].partitions[0].records)
            assert records[21:][: len(first) - 21] == first[21:]
            assert records[len(first) + 21 :] == second[21:]
            assert struct.unpack_from(">q", records, len(first)) == (3,)
            await client.close()

    run(main())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (produce(batch(), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(batch(), topic="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(), topic="__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (produce(b""), ErrorCode.INVALID_RECORD),
        (produce(batch()[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (produce(batch()[:-1] + b"?"), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_produce_that_is_refused_says_why(
    request_: tuple[int, int, produce_messages.ProduceRequest], code: ErrorCode
) -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            answer = only(await client.ask(*request_))
            assert answer.error_code == code
            assert answer.error_message
            assert gateway.counters.errors_by_code == {code: 1}
            await client.close()

    run(main())


def test_a_transactional_produce_is_refused_with_an_error_that_clients_take_as_final() -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            key, version, request = produce(batch())
            transactional = produce_messages.ProduceRequest("tx", -1, 1000, request.topic_data)
            answer = only(await client.ask(key, version, transactional))
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await client.close()

    run(main())


@pytest.mark.parametrize("failure", [DiskFullError("full"), OutOfOrderSequenceError("gap")])
def test_an_error_of_the_log_becomes_the_partitions_error(failure: Exception) -> None:
    async def main() -> None:
        broker = one_topic()
        broker.failure = failure
        async with serving(broker) as gateway:
            client = await connect(gateway)
            answer = only(await client.ask(*produce(batch())))
            assert answer.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            assert answer.base_offset == -1
            await client.close()

    run(main())


def test_an_unexpected_exception_is_logged_with_its_traceback_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = one_topic()
        broker.failure = RuntimeError("a bug that knows /secret")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            answer = only(await client.ask(*produce(batch())))
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert answer.error_message is not None
            assert "secret" not in answer.error_message
            assert gateway.counters.handler_failures == 1
            assert (await client.ask(*API_VERSIONS)).error_code == 0
            await client.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    assert any(record.exc_info for record in caplog.records)


def test_produce_without_acknowledgement_has_no_answer() -> None:
    async def main() -> None:
        broker = one_topic()
        async with serving(broker) as gateway:
            client = await connect(gateway)
            client.send(*produce(batch(), acks=0))
            await client.ask(*API_VERSIONS)
            assert len(broker.log("t")) == 1
            await client.close()

    run(main())


def test_produce_without_acknowledgement_that_fails_closes_the_connection() -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            client.send(*produce(batch(), acks=0, topic="missing"))
            assert await client.closed() == b""
            await client.close()

    run(main())


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_with_bad_records_says_which_they_are(version: int) -> None:
    async def main() -> None:
        broker = one_topic()
        broker.failure = InvalidRecordError("bad batch", records=[(1, "no key"), (4, "no key")])
        async with serving(broker) as gateway:
            client = await connect(gateway)
            name, topic_id = ("", broker.catalog.topics["t"].id) if version >= 13 else ("t", UUID(int=0))
            data = (
                produce_messages.TopicProduceData(name, topic_id, (produce_messages.PartitionProduceData(0, batch()),)),
            )
            answer = only(await client.ask(0, version, produce_messages.ProduceRequest(None, -1, 1000, data)))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            if version >= 8:
                assert answer.error_message == "bad batch"
                found = [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]
                assert found == [(1, "no key"), (4, "no key")]
            await client.close()

    run(main())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_produce_without_time_waits_until_it_is_stored(timeout_ms: int) -> None:
    async def main() -> None:
        clock = SimulatedClock()
        broker = one_topic()
        broker.hold = True
        async with serving(broker, clock=clock) as gateway:
            client = await connect(gateway)
            sent = client.send(*produce(batch(), timeout_ms=timeout_ms))
            await until(lambda: len(broker.held) == 1, "the append waits")
            clock.advance(700)
            broker.release()
            assert only(await client.receive(0, 9, sent)).error_code == 0
            await client.close()

    run(main())


def test_a_produce_that_is_not_stored_in_time_is_answered_with_maybe_and_stored_all_the_same() -> None:
    async def main() -> None:
        clock = SimulatedClock()
        broker = one_topic()
        broker.hold = True
        async with serving(broker, clock=clock) as gateway:
            client = await connect(gateway)
            sent = client.send(*produce(batch(), timeout_ms=700))
            await until(lambda: len(broker.held) == 1, "the append waits")
            clock.advance(699)
            assert broker.held
            clock.advance(1)
            answer = only(await client.receive(0, 9, sent))
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            broker.release()
            assert len(broker.log("t")) == 1
            assert (await client.ask(*API_VERSIONS)).error_code == 0
            await client.close()

    run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_versions_that_are_advertised_and_not_served_get_an_answer(version: int) -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            old = batch()
            body = struct.pack(">hiih", 1, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(old)) + old
            frame = struct.pack(">hhih", 0, version, 77, -1) + body
            client.send_bytes(struct.pack(">i", len(frame)) + frame)
            answer = await client.frame()
            correlation_id, topics, name_size, name, partitions, index, code, offset = struct.unpack_from(
                ">iih1siihq", answer
            )
            assert (correlation_id, topics, name_size, name, partitions, index) == (77, 1, 1, b"t", 1, 0)
            assert (code, offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert len(answer) == struct.calcsize(">iih1siihq") + (8 if version >= 2 else 0) + (4 if version else 0)
            await client.close()

    run(main())


def test_a_long_poll_is_answered_when_something_arrives() -> None:
    async def main() -> None:
        broker = one_topic()
        async with serving(broker) as gateway:
            reader, writer = await connect(gateway), await connect(gateway)
            sent = reader.send(*fetch(0, wait_ms=50_000))
            await until(lambda: broker.waiting_count == 1, "the reader waits")
            await writer.ask(*produce(batch(b"news")))
            response = await reader.receive(1, 12, sent)
            assert bytes(response.responses[0].partitions[0].records).endswith(b"news")
            await reader.close()
            await writer.close()

    run(main())


def test_an_empty_partition_answers_with_empty_and_never_null() -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            for version in range(4, 13):
                wanted = fetch_messages.FetchPartition(partition=0, partition_max_bytes=1000)
                request = fetch_messages.FetchRequest(
                    replica_id=-1, topics=(fetch_messages.FetchTopic(topic="t", partitions=(wanted,)),)
                )
                partition = (await client.ask(1, version, request)).responses[0].partitions[0]
                assert partition.records is not None
                assert bytes(partition.records) == b""
                assert partition.aborted_transactions == ()
            await client.close()

    run(main())


def test_an_offset_out_of_range_carries_the_logs_offsets() -> None:
    async def main() -> None:
        broker = one_topic()
        async with serving(broker) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(count=5)))
            partition = (await client.ask(*fetch(99))).responses[0].partitions[0]
            assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (partition.log_start_offset, partition.high_watermark) == (0, 5)
            await client.close()

    run(main())


def test_an_unknown_topic_id_is_told_apart_from_an_unknown_name() -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            wanted = fetch_messages.FetchPartition(partition=0)
            topic = fetch_messages.FetchTopic(topic_id=UUID(int=5), partitions=(wanted,))
            response = await client.ask(1, 13, fetch_messages.FetchRequest(topics=(topic,)))
            assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            response = await client.ask(*fetch(topic="missing"))
            assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await client.close()

    run(main())


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "code"),
    [
        (0, 0, ErrorCode.NONE),
        (0, -1, ErrorCode.NONE),
        (5, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 3, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_fetch_sessions_are_refused_so_that_clients_send_full_requests(
    session_id: int, session_epoch: int, code: ErrorCode
) -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            request = fetch_messages.FetchRequest(session_id=session_id, session_epoch=session_epoch)
            response = await client.ask(1, 12, request)
            assert (response.error_code, response.session_id) == (code, 0)
            await client.close()

    run(main())


@pytest.mark.parametrize("version", range(4, 19))
def test_a_client_that_sends_a_replica_id_fetches_as_a_consumer(version: int) -> None:
    async def main() -> None:
        broker = one_topic()
        async with serving(broker) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(b"first")))
            name, topic_id = ("", broker.catalog.topics["t"].id) if version >= 13 else ("t", UUID(int=0))
            wanted = fetch_messages.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topics = (fetch_messages.FetchTopic(name, topic_id, (wanted,)),)
            request = fetch_messages.FetchRequest(replica_id=0, max_bytes=1 << 20, topics=topics)
            if version >= 15:
                state = fetch_messages.ReplicaState(replica_id=0, replica_epoch=3)
                request = fetch_messages.FetchRequest(replica_state=state, max_bytes=1 << 20, topics=topics)
            (found,) = (await client.ask(1, version, request)).responses[0].partitions
            assert (found.error_code, found.high_watermark) == (0, 1)
            assert found.records
            await client.close()

    run(main())


@pytest.mark.parametrize("version", range(1, 11))
def test_a_client_that_sends_a_replica_id_is_told_offsets(version: int) -> None:
    """kafka-python 3.0.0 to 3.0.11 does, and reads nothing where it is refused."""

    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(b"first")))
            for time, offset in ((-2, 0), (-1, 1)):
                wanted = (list_offsets.ListOffsetsPartition(0, -1, time),)
                topics = (list_offsets.ListOffsetsTopic("t", wanted),)
                answer = await client.ask(2, version, list_offsets.ListOffsetsRequest(0, 0, topics))
                (found,) = answer.topics[0].partitions
                assert (found.error_code, found.offset) == (0, offset)
            await client.close()

    run(main())


@pytest.mark.parametrize("version", [3, 4])
def test_a_client_that_sends_a_replica_id_is_told_where_an_epoch_ends(version: int) -> None:
    async def main() -> None:
        async with serving(one_topic()) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(b"first")))
            wanted = (offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 3),)
            topics = (offset_for_leader_epoch.OffsetForLeaderTopic("t", wanted),)
            answer = await client.ask(23, version, offset_for_leader_epoch.OffsetForLeaderEpochRequest(0, topics))
            (found,) = answer.topics[0].partitions
            assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 3, 1)
            await client.close()

    run(main())
