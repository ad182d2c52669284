"""Frames: a message with its header, and its length before it.

    request    length int32 | api key int16 | version int16 | correlation id int32 | client id string | [tags] | body
    response   length int32 | correlation id int32 | [tags] | body

Tags are there in flexible versions, except in the response of ApiVersions, whose header never has them. The client id
is a string with a 16-bit length in every version. Functions here take frames without the length and give frames with
it: who reads from a stream has consumed the length to know where the frame ends.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.model.batch import Buffer
from headrace.wire.kafka.api import API_VERSIONS_KEY, Api
from headrace.wire.kafka.primitives import INT16, INT32, FlexibleReader, MalformedError, Reader, Writer
from headrace.wire.kafka.registry import APIS

UNSUPPORTED_VERSION = 35

_REQUEST_START = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_CLIENT_ID_POSITION = _REQUEST_START.size
_FLEXIBLE_FROM = {key: api.flexible_from for key, api in APIS.items() if api.flexible_from is not None}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int  # where in the frame the body begins


def read_request_header(frame: Buffer) -> RequestHeader:
    """Parse the header. Of an API key that no table has, nobody knows the encoding: its body is not to be parsed."""
    # By hand: it runs for every request, and a reader's calls would take most of its time.
    if len(frame) < _CLIENT_ID_POSITION:
        raise MalformedError(f"a request of {len(frame)} bytes; its header alone takes {_CLIENT_ID_POSITION}")
    api_key, api_version, correlation_id, size = _REQUEST_START.unpack_from(frame)
    position: int = _CLIENT_ID_POSITION
    client_id = None
    if size >= 0:
        position += size
        if position > len(frame):
            raise MalformedError(f"a client id of {size} bytes at byte {_CLIENT_ID_POSITION}, in {len(frame)}")
        try:
            client_id = str(frame[_CLIENT_ID_POSITION:position], "utf-8")
        except UnicodeDecodeError:
            raise MalformedError("a client id that is not UTF-8") from None
    elif size < -1:
        raise MalformedError(f"a client id of {size} bytes")
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is not None and api_version >= flexible_from:
        position = _skip_tags(frame, position)
    # The tuple's own constructor: that of the named one is a Python function and takes twice the time.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


def _skip_tags(frame: Buffer, position: int) -> int:
    if position < len(frame) and frame[position] == 0:  # no client has sent any so far
        return position + 1
    reader = FlexibleReader(frame, position)
    reader.end_struct()
    return reader.position


def read_request(header: RequestHeader, frame: Buffer) -> Any:
    """The body of a request whose API and version are in the tables; bytes left over are an error."""
    api = _known(header.api_key, header.api_version)
    reader = api.reader(header.api_version)(frame, header.body_position)
    request = api.codec.read_request(reader, header.api_version)
    reader.end_message()
    return request


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytes:
    """A whole request frame, its length included."""
    api = _known(api_key, version)
    head = Writer()
    head.put(struct.pack(">hhi", api_key, version, correlation_id))
    head.nullable_string(client_id)
    writer = api.writer(version)()
    writer.pieces += head.pieces
    if api.is_flexible(version):
        writer.end_struct()
    return _framed(writer, api.codec.write_request, request, version)


def response_header(api: Api, version: int, correlation_id: int) -> bytes:
    """What stands between the length and the body of a response."""
    tags = b"\x00" if api.response_header_version(version) else b""
    return INT32.pack(correlation_id) + tags


def encode_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """A whole response frame, its length included."""
    api = _known(api_key, version)
    writer = api.writer(version)()
    writer.put(response_header(api, version, correlation_id))
    return _framed(writer, api.codec.write_response, response, version)


class Response(NamedTuple):
    correlation_id: int
    value: Any


def read_correlation_id(frame: Buffer) -> int:
    """Which request a response answers: all that can be read of it before one knows its API and version."""
    return Reader(frame).int32()


def read_response(api_key: int, version: int, frame: Buffer) -> Response:
    """Parse a response to a request of this API and version."""
    api = _known(api_key, version)
    reader = api.reader(version)(frame)
    correlation_id = reader.int32()
    if api.response_header_version(version):
        reader.end_struct()
    if api_key == API_VERSIONS_KEY and _is_version_refusal(reader):
        # A broker that does not know our version answers in version 0, which every client can read (KIP-511).
        version = 0
        reader = Reader(frame, reader.position)
    value = api.codec.read_response(reader, version)
    reader.end_message()
    return Response(correlation_id, value)


def _is_version_refusal(reader: Reader) -> bool:
    if reader.end - reader.position < INT16.size:
        raise MalformedError(f"an ApiVersions response that ends at byte {reader.end}, before its error code")
    code: int = INT16.unpack_from(reader.buffer, reader.position)[0]
    return code == UNSUPPORTED_VERSION


def _known(api_key: int, version: int) -> Api:
    api = APIS.get(api_key)
    if api is None:
        raise ValueError(f"no table for API key {api_key}")
    if not api.min_version <= version <= api.max_version:
        raise ValueError(f"{api.name} has versions {api.min_version} to {api.max_version}, not {version}")
    return api


def _framed(writer: Writer, write: Callable[[Writer, Any, int], None], value: Any, version: int) -> bytes:
    try:
        write(writer, value, version)
    except struct.error as problem:
        raise ValueError(f"a number that does not fit its field: {problem}") from problem
    size = sum(map(len, writer.pieces))
    return b"".join((INT32.pack(size), *writer.pieces))
