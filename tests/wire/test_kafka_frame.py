"""Frames: headers in their versions, whole frames there and back, and what is refused."""

import io
import subprocess
import sys
import tracemalloc

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32
from tests.wire.every import message_name

from headrace.wire.kafka.api import Api
from headrace.wire.kafka.frame import (
    encode_request,
    encode_response,
    read_correlation_id,
    read_request,
    read_request_header,
    read_response,
)
from headrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.kafka.primitives import FlexibleReader, MalformedError, Reader
from headrace.wire.kafka.registry import APIS

every_api = pytest.mark.parametrize("api", APIS.values(), ids=message_name)


@every_api
def test_requests_and_responses_of_every_version_go_through_a_frame(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request, response = api.codec.request(), api.codec.response()
        frame = encode_request(api.key, version, 42, "client", request)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header = read_request_header(frame[4:])
        assert header[:4] == (api.key, version, 42, "client")
        assert read_request(header, frame[4:]) == request
        answer = encode_response(api.key, version, 42, response)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        assert read_correlation_id(answer[4:]) == 42
        assert read_response(api.key, version, answer[4:]) == (42, response)


@pytest.mark.parametrize("client_id", [None, "", "client"])
@every_api
def test_request_headers_are_as_kio_writes_them(api: Api, client_id: str | None) -> None:
    for version in range(api.min_version, api.max_version + 1):
        kio_type = KioHeader2 if api.request_header_version(version) == 2 else KioHeader1
        out = io.BytesIO()
        header = kio_type(
            request_api_key=i16(api.key),
            request_api_version=i16(version),
            correlation_id=i32(9),
            client_id=client_id,
        )
        entity_writer(kio_type)(out, header)
        ours = read_request_header(out.getvalue())
        assert ours == (api.key, version, 9, client_id, len(out.getvalue()))


def test_the_response_header_of_api_versions_never_has_tags() -> None:
    frame = encode_response(18, 3, 1, ApiVersionsResponse())
    assert frame[8:10] == b"\x00\x00"  # the error code follows the correlation id at once
    assert APIS[18].response_header_version(3) == 0
    assert APIS[3].response_header_version(12) == 1


def test_a_refusal_of_the_version_of_api_versions_is_read_in_version_0() -> None:
    refusal = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(18, 0, 3),))
    frame = encode_response(18, 0, 5, refusal)
    assert read_response(18, 4, frame[4:]) == (5, refusal)


def test_the_header_of_an_unknown_api_or_version_is_read() -> None:
    unknown = (999).to_bytes(2, "big") + b"\x00\x07" + b"\x00\x00\x00\x09" + b"\x00\x02me" + b"whatever"
    assert read_request_header(unknown) == (999, 7, 9, "me", 12)
    future = (18).to_bytes(2, "big") + b"\x00\x63" + b"\x00\x00\x00\x09" + b"\x00\x02me" + b"\x00" + b"whatever"
    assert read_request_header(future) == (18, 99, 9, "me", 13)


def test_tags_in_a_request_header_are_skipped() -> None:
    frame = encode_request(3, 12, 1, "me", MetadataRequest())[4:]
    position = read_request_header(frame).body_position
    tagged = frame[: position - 1] + b"\x01\x05\x02xy" + frame[position:]
    header = read_request_header(tagged)
    assert header.body_position == position + 4
    assert read_request(header, tagged) == MetadataRequest()


def test_a_header_cut_at_any_byte_is_refused() -> None:
    frame = encode_request(3, 12, 1, "me", MetadataRequest())[4:]
    for size in range(read_request_header(frame).body_position):
        with pytest.raises(MalformedError):
            read_request_header(frame[:size])


def test_a_version_outside_the_tables_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="versions 3 to 13"):
        encode_request(0, 2, 1, None, APIS[0].codec.request())
    with pytest.raises(ValueError, match="no table"):
        encode_response(9999, 0, 1, None)


def test_a_field_that_matters_is_not_dropped_silently() -> None:
    topics = (FetchTopic("t", partitions=(FetchPartition(last_fetched_epoch=5),)),)
    with pytest.raises(ValueError, match=r"FetchPartition\.last_fetched_epoch is set, and version 11"):
        encode_request(1, 11, 1, None, FetchRequest(topics=topics))
    with pytest.raises(ValueError, match="allow_auto_topic_creation"):
        encode_request(3, 3, 1, None, MetadataRequest(allow_auto_topic_creation=False))


def test_null_is_refused_in_a_version_without_it() -> None:
    with pytest.raises(ValueError, match="must not be null in version 9"):
        encode_request(3, 9, 1, None, MetadataRequest(topics=(MetadataRequestTopic(name=None),)))


def test_a_number_that_does_not_fit_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_response(3, 12, 1, MetadataResponse(throttle_time_ms=1 << 40))


@pytest.mark.parametrize(
    ("reader", "lie"),
    [
        (Reader(b"\x7f\xff\xff\xff" + bytes(100)), 2**31 - 1),
        (FlexibleReader(b"\xff\xff\xff\xff\x0f" + bytes(100)), 2**32 - 2),
    ],
    ids=["classic", "flexible"],
)
def test_a_count_that_lies_allocates_nothing(reader: Reader, lie: int) -> None:
    start = reader.position
    methods = [
        lambda: reader.array(lambda r, version: r.int8(), 0, 1),
        lambda: reader.nullable_array(lambda r, version: r.int8(), 0, 1),
        reader.int8_array,
        reader.int32_array,
        reader.int64_array,
        reader.string_array,
        reader.uuid_array,
        reader.byte_string,
        reader.records,
    ]
    tracemalloc.start()
    try:
        for method in methods:
            reader.position = start
            with pytest.raises(MalformedError, match=str(lie)):
                method()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\x80" * 4, b"\xff\xff\xff\xff\x1f", b"\xff" * 20, b""])
def test_a_varint_without_bound_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        FlexibleReader(data).uvarint()


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(MalformedError, match="UTF-8"):
        Reader(b"\x00\x02\xff\xfe").string()


def test_tags_out_of_order_are_refused() -> None:
    with pytest.raises(MalformedError, match="tag 1 after tag 2"):
        FlexibleReader(b"\x02\x02\x00\x01\x00").end_struct()


def test_the_registry_imports_no_message_until_asked() -> None:
    script = (
        "import sys; from headrace.wire.kafka import frame, registry; "
        "print([name for name in sys.modules if 'kafka.messages.' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
