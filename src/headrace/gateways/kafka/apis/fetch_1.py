"""Fetch (key 1), versions 4 to 18: stored bytes, out as they are.

Waiting for messages (`max_wait_ms`, `min_bytes`) is the broker's; an answer that is ready goes out at once. Topics are
named by id from 13.

Deviations. Fetch sessions (7+) are not kept: every answer has session id 0, which tells a client to send full requests,
and a request that names a session gets FETCH_SESSION_ID_NOT_FOUND, upon which clients begin anew with a full one.
A replica id does not matter: followers have a listener of their own, and every caller here reads as a consumer, up to
the high watermark.
The preferred read replica is never set.
"""

from collections.abc import Awaitable

from headrace.broker.fetch import SHORT_BYTES, Fetch, Fetched, FetchPart
from headrace.gateways.answers import Share
from headrace.gateways.kafka.answer import Answer, Reply, Sized, Wait
from headrace.gateways.kafka.context import Context, RawApi
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, read_code_of
from headrace.model.errors import OffsetOutOfRangeError
from headrace.wire.kafka.fetch import FetchedPartition, FetchPartition, FetchRequest, read_request, write_response
from headrace.wire.kafka.frame import RequestHeader
from headrace.wire.kafka.primitives import MalformedError

VERSION_MIN = 4
VERSION_MAX = 18
_SESSIONS_FROM = 7
_READ_COMMITTED = 1
_FINAL_EPOCH = -1
_INITIAL_EPOCH = 0
_UNKNOWN = -1
# How long a client is asked to wait that got nothing because there was no memory for its answer.
_THROTTLE_MS = 1_000


def _serve(context: Context, header: RequestHeader, frame: bytearray) -> Reply:
    request = read_request(frame, header.body_position, header.api_version)
    refusal = _find_refusal(request)
    if refusal is not None:
        return _answer_all(context, header, request, refusal)
    limits = context.limits
    bytes_max = min(request.max_bytes, limits.fetch_bytes_max)
    fetch = Fetch(
        parts=[
            FetchPart(
                topic=part.topic,
                partition=part.partition,
                offset=part.fetch_offset,
                bytes_max=part.bytes_max,
                epoch=part.leader_epoch,
                last_fetched_epoch=part.last_fetched_epoch,
            )
            for part in request.partitions
        ],
        bytes_min=request.min_bytes,
        bytes_max=bytes_max,
        wait_ms=min(max(request.max_wait_ms, 0), limits.fetch_wait_ms_max),
        read_committed=request.isolation_level == _READ_COMMITTED,
    )

    return _Fetching(context, header, request, fetch)


class _Fetching(Sized):
    """A fetch that may begin once there is memory for its answer."""

    __slots__ = ("_context", "_fetch", "_header", "_request")

    def __init__(self, context: Context, header: RequestHeader, request: FetchRequest, fetch: Fetch) -> None:
        self.bytes_max = fetch.bytes_max
        self._context = context
        self._header = header
        self._request = request
        self._fetch = fetch

    def expected(self) -> int:
        return min(self._context.broker.readable_bytes(self._fetch), SHORT_BYTES)

    def begin(self, size: int, share: Share) -> Answer | Wait:
        context, header, request, fetch = self._context, self._header, self._request, self._fetch
        if size < fetch.bytes_max:
            # A client that is given less than it asks for does not wait for more.
            fetch = fetch._replace(bytes_max=size, bytes_min=min(fetch.bytes_min, size))
        try:
            fetched = context.broker.fetch(fetch, share)
            if isinstance(fetched, list):
                return _answer(context, header, request, fetched)
        except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
            return _answer_all(context, header, request, context.explain(error))
        return Wait(_wait(context, header, request, fetched))

    def refuse(self) -> Answer:
        positions = self._context.broker.positions(self._fetch)
        return _answer(self._context, self._header, self._request, positions, throttle_ms=_THROTTLE_MS)


async def _wait(
    context: Context, header: RequestHeader, request: FetchRequest, fetched: Awaitable[list[Fetched]]
) -> Answer:
    try:
        return _answer(context, header, request, await fetched)
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
        return _answer_all(context, header, request, context.explain(error))


def _answer(
    context: Context, header: RequestHeader, request: FetchRequest, fetched: list[Fetched], *, throttle_ms: int = 0
) -> Answer:
    partitions = [
        FetchedPartition(
            asked.topic,
            asked.partition,
            0,
            found.high_watermark,
            found.last_stable_offset,
            found.start_offset,
            found.buffers,
            found.aborted,
        )
        if found.error is None and found.diverging is None
        else _unusual(context, asked, found)
        for asked, found in zip(request.partitions, fetched, strict=True)
    ]
    return write_response(partitions, header.api_version, header.correlation_id, throttle_ms=throttle_ms)


def _unusual(context: Context, asked: FetchPartition, found: Fetched) -> FetchedPartition:
    """A partition that answers with an error, or with where the client's log and ours part."""
    high_watermark, start_offset = found.high_watermark, found.start_offset
    code = 0
    if found.error is not None:
        code = read_code_of(context.explain(found.error))
        context.counters.count_error(code)
        if isinstance(found.error, OffsetOutOfRangeError):
            # Clients that reset by policy look at these first (design: what broke real clients).
            start_offset = found.error.start if start_offset < 0 else start_offset
            high_watermark = found.error.end if high_watermark < 0 else high_watermark
    epoch, end_offset = found.diverging if found.diverging is not None else (_UNKNOWN, _UNKNOWN)
    return FetchedPartition(
        asked.topic,
        asked.partition,
        code,
        high_watermark,
        found.last_stable_offset,
        start_offset,
        diverging_epoch=epoch,
        diverging_end_offset=end_offset,
    )


def _find_refusal(request: FetchRequest) -> RefusedError | None:
    if request.session_epoch == _FINAL_EPOCH:
        return None
    if request.session_id != 0:
        return RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "sessions are not kept; send full requests")
    if request.session_epoch != _INITIAL_EPOCH:
        return RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "sessions are not kept; send full requests")
    return None


def _answer_all(context: Context, header: RequestHeader, request: FetchRequest, error: BaseException) -> Answer:
    """An error for the whole request: in its own field where the version has one, else in every partition."""
    code = code_of(error)
    context.counters.count_error(code)
    if header.api_version >= _SESSIONS_FROM:
        return write_response([], header.api_version, header.correlation_id, error_code=code)
    partitions = [FetchedPartition(part.topic, part.partition, code, _UNKNOWN) for part in request.partitions]
    return write_response(partitions, header.api_version, header.correlation_id)


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    if not VERSION_MIN <= header.api_version <= VERSION_MAX:
        raise MalformedError(f"Fetch version {header.api_version} has an unknown form")
    request = read_request(frame, header.body_position, header.api_version)
    return _answer_all(context, header, request, RefusedError(ErrorCode(code), message))


API = RawApi(key=1, version_min=VERSION_MIN, version_max=VERSION_MAX, serve=_serve, refuse=_refuse)
