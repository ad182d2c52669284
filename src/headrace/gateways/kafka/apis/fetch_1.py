"""Fetch (key 1), versions 4 to 18: stored bytes, out as they are.

Waiting for messages (`max_wait_ms`, `min_bytes`) is the broker's; an answer that is ready goes out at once. Topics are
named by id from 13.

Deviations. Fetch sessions (7+) are not kept: every answer has session id 0, which tells a client to send full requests,
and a request that names a session gets FETCH_SESSION_ID_NOT_FOUND, upon which clients begin anew with a full one.
Replica ids are refused with CLUSTER_AUTHORIZATION_FAILED: followers have a listener of their own (design: security).
The preferred read replica is never set.
"""

from collections.abc import Awaitable

from headrace.broker.fetch import Fetch, Fetched, FetchPart
from headrace.gateways.kafka.answer import Answer, Reply, Wait
from headrace.gateways.kafka.context import Context, RawApi
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of
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


def _serve(context: Context, header: RequestHeader, frame: bytearray) -> Reply:
    request = read_request(frame, header.body_position, header.api_version)
    refusal = _find_refusal(request)
    if refusal is not None:
        return _answer_all(context, header, request, refusal)
    limits = context.limits
    fetched = context.broker.fetch(
        Fetch(
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
            bytes_max=min(request.max_bytes, limits.fetch_bytes_max),
            wait_ms=min(max(request.max_wait_ms, 0), limits.fetch_wait_ms_max),
            read_committed=request.isolation_level == _READ_COMMITTED,
        )
    )
    if isinstance(fetched, list):
        return _answer(context, header, request, fetched)
    return Wait(_wait(context, header, request, fetched))


async def _wait(
    context: Context, header: RequestHeader, request: FetchRequest, fetched: Awaitable[list[Fetched]]
) -> Answer:
    try:
        return _answer(context, header, request, await fetched)
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
        return _answer_all(context, header, request, context.explain(error))


def _answer(context: Context, header: RequestHeader, request: FetchRequest, fetched: list[Fetched]) -> Answer:
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
    return write_response(partitions, header.api_version, header.correlation_id)


def _unusual(context: Context, asked: FetchPartition, found: Fetched) -> FetchedPartition:
    """A partition that answers with an error, or with where the client's log and ours part."""
    high_watermark, start_offset = found.high_watermark, found.start_offset
    code = 0
    if found.error is not None:
        code = code_of(context.explain(found.error))
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
    if request.replica_id >= 0:
        return RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "replicas do not fetch through this listener")
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
