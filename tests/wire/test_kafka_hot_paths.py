"""Produce and Fetch by hand agree with the generated codec byte for byte, in every version, on good and bad input."""

from collections.abc import Callable
from itertools import groupby
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.drawing import decode, draw_message

from headrace.model.batch import Buffer
from headrace.wire.kafka import fetch, produce
from headrace.wire.kafka.frame import encode_request, encode_response, read_request_header
from headrace.wire.kafka.messages import fetch as fetch_messages
from headrace.wire.kafka.messages import produce as produce_messages
from headrace.wire.kafka.primitives import ZERO_UUID, MalformedError
from headrace.wire.kafka.registry import APIS

PRODUCE, FETCH = APIS[0], APIS[1]
quick = settings(max_examples=40, deadline=None, database=None)
produce_versions = pytest.mark.parametrize("version", range(PRODUCE.min_version, PRODUCE.max_version + 1))
fetch_versions = pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
messages = st.none() | st.text(max_size=8)


def topics(version: int) -> st.SearchStrategy[list[Any]]:
    if version >= 13:
        return st.lists(st.uuids(), unique=True, max_size=3)
    return st.lists(st.text(max_size=8), unique=True, max_size=3)


def named(topic: str | UUID) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}


def outcome(read: Callable[[Buffer], Any], data: Buffer) -> Any:
    """What a reader makes of the data: a value, or that it refuses."""
    try:
        return read(data)
    except MalformedError:
        return "malformed"


def flat_produce(request: produce_messages.ProduceRequest, version: int) -> produce.ProduceRequest:
    return produce.ProduceRequest(
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            produce.RecordSet(
                topic.topic_id if version >= 13 else topic.name, part.index, memoryview(part.records or b"")
            )
            for topic in request.topic_data
            for part in topic.partition_data
        ],
    )


def flat_fetch(request: fetch_messages.FetchRequest, version: int) -> fetch.FetchRequest:
    state = request.replica_state
    return fetch.FetchRequest(
        state.replica_id if version >= 15 else request.replica_id,
        state.replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            fetch.FetchPartition(
                topic.topic_id if version >= 13 else topic.topic,
                part.partition,
                part.current_leader_epoch,
                part.fetch_offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
            for topic in request.topics
            for part in topic.partitions
        ],
        [
            fetch.ForgottenTopic(topic.topic_id if version >= 13 else topic.topic, topic.partitions)
            for topic in request.forgotten_topics_data
        ],
        request.rack_id,
    )


def assert_readers_agree(api_key: int, version: int, seed: int, noise: bytes, at: int) -> None:
    """Intact, cut at every byte, and with noise in it: both readers return the same or both refuse."""
    api = APIS[api_key]
    hot: Any = produce if api_key == 0 else fetch
    flat: Any = flat_produce if api_key == 0 else flat_fetch
    request = draw_message(api, version, "request", Random(seed))
    frame = encode_request(api_key, version, 1, "client", request)[4:]
    position = read_request_header(frame).body_position
    assert hot.read_request(frame, position, version) == flat(request, version)
    body = frame[position:]
    spoiled = at % len(body)
    cases = [body[:size] for size in range(len(body))]
    cases.append(body[:spoiled] + noise + body[spoiled + len(noise) :])
    for case in cases:
        by_hand = outcome(lambda data: hot.read_request(data, 0, version), case)
        generated = outcome(lambda data: flat(decode(api, version, "request", data), version), case)
        assert by_hand == generated


@produce_versions
@quick
@given(seed=st.integers(0, 2**32), noise=st.binary(min_size=1, max_size=6), at=st.integers(0, 2**16))
def test_both_readers_of_produce_agree(version: int, seed: int, noise: bytes, at: int) -> None:
    assert_readers_agree(0, version, seed, noise, at)


@fetch_versions
@quick
@given(seed=st.integers(0, 2**32), noise=st.binary(min_size=1, max_size=6), at=st.integers(0, 2**16))
def test_both_readers_of_fetch_agree(version: int, seed: int, noise: bytes, at: int) -> None:
    assert_readers_agree(1, version, seed, noise, at)


def test_record_sets_are_writable_views_into_the_frame() -> None:
    partitions = (produce_messages.PartitionProduceData(3, b"records"),)
    request = produce_messages.ProduceRequest(
        topic_data=(produce_messages.TopicProduceData("t", ZERO_UUID, partitions),)
    )
    frame = bytearray(encode_request(0, 9, 1, None, request)[4:])
    (record_set,) = produce.read_request(frame, read_request_header(frame).body_position, 9).record_sets
    record_set.records[0:3] = b"REC"
    assert b"RECords" in frame


@produce_versions
@quick
@given(data=st.data(), throttle_ms=int32s, correlation_id=int32s)
def test_both_writers_of_produce_agree(
    version: int, data: st.DataObject, throttle_ms: int, correlation_id: int
) -> None:
    result = st.builds(
        produce.ProduceResult,
        topic=st.none(),
        partition=int32s,
        error_code=int16s,
        base_offset=int64s,
        log_append_time_ms=int64s,
        log_start_offset=int64s,
        error_message=messages,
        leader_id=st.just(-1) if version < 10 else int32s,
        leader_epoch=st.just(-1) if version < 10 else int32s,
        record_errors=st.just([]) if version < 8 else st.lists(st.tuples(int32s, messages), max_size=3),
    )
    results = [
        item._replace(topic=topic)
        for topic in data.draw(topics(version))
        for item in data.draw(st.lists(result, min_size=1, max_size=3))
    ]
    endpoints = data.draw(st.lists(st.builds(produce.Endpoint, int32s, st.text(), int32s, messages), max_size=2))
    endpoints = endpoints if version >= 10 else []
    response = produce_messages.ProduceResponse(
        tuple(
            produce_messages.TopicProduceResponse(
                **named(topic),
                partition_responses=tuple(
                    produce_messages.PartitionProduceResponse(
                        item.partition,
                        item.error_code,
                        item.base_offset,
                        item.log_append_time_ms,
                        item.log_start_offset,
                        tuple(produce_messages.BatchIndexAndErrorMessage(*one) for one in item.record_errors),
                        error_message=item.error_message,
                        current_leader=produce_messages.LeaderIdAndEpoch(item.leader_id, item.leader_epoch),
                    )
                    for item in group
                ),
            )
            for topic, group in groupby(results, key=lambda item: item.topic)
        ),
        throttle_ms,
        tuple(produce_messages.NodeEndpoint(*endpoint) for endpoint in endpoints),
    )
    by_hand = produce.write_response(results, version, correlation_id, throttle_ms=throttle_ms, endpoints=endpoints)
    assert by_hand == encode_response(0, version, correlation_id, response)


def fetched(version: int) -> st.SearchStrategy[fetch.FetchedPartition]:
    flexible32, flexible64 = (st.just(-1), st.just(-1)) if version < 12 else (int32s, int64s)
    return st.builds(
        fetch.FetchedPartition,
        topic=st.none(),
        partition=int32s,
        error_code=int16s,
        high_watermark=int64s,
        last_stable_offset=int64s,
        log_start_offset=int64s,
        records=st.lists(st.binary(max_size=20) | st.just(b"stored" * 200), max_size=3),
        aborted=st.lists(st.tuples(int64s, int64s), max_size=2),
        preferred_read_replica=st.just(-1) if version < 11 else int32s,
        diverging_epoch=flexible32,
        diverging_end_offset=flexible64,
        leader_id=flexible32,
        leader_epoch=flexible32,
    )


def generated_fetch_partition(item: fetch.FetchedPartition) -> fetch_messages.PartitionData:
    return fetch_messages.PartitionData(
        item.partition,
        item.error_code,
        item.high_watermark,
        item.last_stable_offset,
        item.log_start_offset,
        fetch_messages.EpochEndOffset(item.diverging_epoch, item.diverging_end_offset),
        fetch_messages.LeaderIdAndEpoch(item.leader_id, item.leader_epoch),
        aborted_transactions=tuple(fetch_messages.AbortedTransaction(*pair) for pair in item.aborted),
        preferred_read_replica=item.preferred_read_replica,
        records=b"".join(item.records),
    )


@fetch_versions
@quick
@given(data=st.data(), throttle_ms=int32s, error_code=int16s, session_id=int32s)
def test_both_writers_of_fetch_agree(
    version: int, data: st.DataObject, throttle_ms: int, error_code: int, session_id: int
) -> None:
    partitions = [
        item._replace(topic=topic)
        for topic in data.draw(topics(version))
        for item in data.draw(st.lists(fetched(version), min_size=1, max_size=3))
    ]
    endpoints = data.draw(st.lists(st.builds(produce.Endpoint, int32s, st.text(), int32s, messages), max_size=2))
    endpoints = endpoints if version >= 16 else []
    response = fetch_messages.FetchResponse(
        throttle_ms,
        error_code if version >= 7 else 0,
        session_id if version >= 7 else 0,
        tuple(
            fetch_messages.FetchableTopicResponse(
                topic if isinstance(topic, str) else "",
                topic if isinstance(topic, UUID) else ZERO_UUID,
                tuple(generated_fetch_partition(item) for item in group),
            )
            for topic, group in groupby(partitions, key=lambda item: item.topic)
        ),
        tuple(fetch_messages.NodeEndpoint(*endpoint) for endpoint in endpoints),
    )
    buffers = fetch.write_response(
        partitions,
        version,
        77,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        endpoints=endpoints,
    )
    assert b"".join(buffers) == encode_response(1, version, 77, response)


def test_stored_records_are_passed_through_uncopied() -> None:
    stored = memoryview(bytearray(100_000))
    buffers = fetch.write_response([fetch.FetchedPartition("t", 0, 0, 5, records=[stored, stored])], 12, 1)
    assert [buffer is stored for buffer in buffers] == [False, True, True, False]
    assert int.from_bytes(buffers[0][:4], "big") == sum(map(len, buffers)) - 4


def test_a_partition_without_records_is_empty_and_not_null() -> None:
    for version in range(FETCH.min_version, FETCH.max_version + 1):
        topic = UUID(int=1) if version >= 13 else "t"
        frame = b"".join(fetch.write_response([fetch.FetchedPartition(topic, 0, 3, -1)], version, 1))
        body = frame[9 if version >= 12 else 8 :]
        (answer,) = decode(FETCH, version, "response", body).responses[0].partitions
        assert answer.records == b""
        assert answer.aborted_transactions == ()
