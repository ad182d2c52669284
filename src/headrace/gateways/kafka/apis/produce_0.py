"""Produce (key 0), versions 3 to 13: the road of every message.

Advertised from 0, because librdkafka before 2 drops gzip, snappy and lz4 from a broker that advertises from 3; below 3
messages have an older form than the one that is stored, and are refused with UNSUPPORTED_VERSION for each partition.

No task is made for a request: its record sets go to their partitions in the callback that read them, and the answer is
put together by the callback of the last append. `timeout_ms` ends the wait, not the append: REQUEST_TIMED_OUT says
*maybe*. acks=1 waits like acks=all, for what the topic's durability asks. acks=0 has no answer; its error closes the
connection, as Kafka does, so that the client at least looks again.

Transactional producing is refused (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final).
"""

from functools import partial

from headrace.broker.partition import Appended
from headrace.broker.promise import Promise
from headrace.gateways.kafka.answer import Answer, CloseConnectionError, Deferred, Reply
from headrace.gateways.kafka.context import Context, RawApi
from headrace.gateways.kafka.deadlines import Deadline
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.model.errors import InvalidNameError, InvalidRecordError, TimedOutError
from headrace.model.names import INTERNAL_NAMES
from headrace.wire.kafka.frame import RequestHeader
from headrace.wire.kafka.primitives import INT32, MalformedError, Reader, Writer
from headrace.wire.kafka.produce import ProduceRequest, ProduceResult, RecordSet, read_request, write_response

VERSION_MIN = 3
VERSION_MAX = 13
_NO_OFFSET = -1


def _serve(context: Context, header: RequestHeader, frame: bytearray) -> Reply:
    request = read_request(frame, header.body_position, header.api_version)
    refusal = _find_refusal(request)
    if refusal is not None:
        return _answer_all(context, header, request, refusal)
    pending = PendingProduce(context, header, request)
    for at, record_set in enumerate(request.record_sets):
        try:
            promise = _append(context, record_set)
        except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
            pending.fail(at, error)
        else:
            promise.then(partial(pending.take, at))
    return pending.reply()


def _find_refusal(request: ProduceRequest) -> RefusedError | None:
    if request.acks not in (-1, 0, 1):
        return RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is not valid; use -1 (all), 0 or 1")
    if request.transactional_id is not None:
        return RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not served; produce without a transactional id",
        )
    return None


def _append(context: Context, record_set: RecordSet) -> Promise[Appended]:
    topic = record_set.topic
    if topic in INTERNAL_NAMES:
        raise InvalidNameError(f"{topic} is a topic of headrace's own; clients may read it and not write to it")
    partition = context.broker.partition(topic, record_set.partition)
    if not record_set.records:
        raise InvalidRecordError("a record set without a batch; send at least one")
    return partition.append(record_set.records)


class PendingProduce:
    """One request on its way through its partitions."""

    __slots__ = ("_context", "_deadline", "_deferred", "_error", "_header", "_left", "_request", "_results")

    def __init__(self, context: Context, header: RequestHeader, request: ProduceRequest) -> None:
        self._context = context
        self._header = header
        self._request = request
        self._results: list[ProduceResult | None] = [None] * len(request.record_sets)
        self._left = len(request.record_sets)
        self._deferred: Deferred | None = None
        self._error: BaseException | None = None
        self._deadline: Deadline | None = None

    def take(self, at: int, promise: Promise[Appended]) -> None:
        error = promise.exception()
        if error is not None:
            self.fail(at, error)
            return
        appended = promise.result()
        record_set = self._request.record_sets[at]
        self._put(
            at,
            ProduceResult(
                record_set.topic,
                record_set.partition,
                0,
                appended.base_offset,
                appended.append_time_ms,
                appended.start_offset,
            ),
        )

    def fail(self, at: int, error: BaseException) -> None:
        self._context.explain(error)
        if self._results[at] is not None:
            return
        self._error = error
        self._put(at, _failed(self._context, self._request.record_sets[at], error))

    def _put(self, at: int, result: ProduceResult) -> None:
        # After the time-out every place is taken, and what comes later is of no use to the client.
        if self._results[at] is not None:
            return
        self._results[at] = result
        self._left -= 1
        if not self._left and self._deferred is not None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deferred.finish(self._outcome())

    def reply(self) -> Reply:
        if not self._left:
            outcome = self._outcome()
            if isinstance(outcome, CloseConnectionError):
                raise outcome
            return outcome
        limit_ms = self._context.limits.produce_timeout_ms_max
        timeout_ms = min(max(self._request.timeout_ms, 1), limit_ms)
        self._deferred = Deferred()
        self._deadline = self._context.deadlines.add(timeout_ms, partial(self._time_out, timeout_ms))
        return self._deferred

    def _time_out(self, timeout_ms: int) -> None:
        error = TimedOutError(f"not stored within {timeout_ms} ms; it may still be, so look before you repeat it")
        for at, result in enumerate(self._results):
            if result is None:
                self.fail(at, error)

    def _outcome(self) -> Answer | CloseConnectionError:
        if self._request.acks == 0:
            return None if self._error is None else _close(self._error)
        results = [result for result in self._results if result is not None]
        return [write_response(results, self._header.api_version, self._header.correlation_id)]


def _close(error: BaseException) -> CloseConnectionError:
    return CloseConnectionError("produce without acknowledgement failed", error=message_of(error))


def _failed(context: Context, record_set: RecordSet, error: BaseException) -> ProduceResult:
    code = code_of(error)
    context.counters.count_error(code)
    return ProduceResult(record_set.topic, record_set.partition, code, _NO_OFFSET, error_message=message_of(error))


def _answer_all(context: Context, header: RequestHeader, request: ProduceRequest, error: BaseException) -> Answer:
    if request.acks == 0:
        raise _close(error)
    results = [_failed(context, record_set, error) for record_set in request.record_sets]
    return [write_response(results, header.api_version, header.correlation_id)]


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    error = RefusedError(ErrorCode(code), message)
    if VERSION_MIN <= header.api_version <= VERSION_MAX:
        request = read_request(frame, header.body_position, header.api_version)
        return _answer_all(context, header, request, error)
    if not 0 <= header.api_version < VERSION_MIN:
        raise MalformedError(f"Produce version {header.api_version} has an unknown form")
    return _refuse_ancient(context, header, frame, error)


def _refuse_ancient(context: Context, header: RequestHeader, frame: bytearray, error: RefusedError) -> Answer:
    """Versions 0 to 2, which no table has any more: the request without transactional id, the answer field by field."""
    version = header.api_version
    reader = Reader(frame, header.body_position)
    acks = reader.int16()
    reader.int32()
    writer = Writer()
    topic_count = reader.count(6)
    writer.count(topic_count)
    for _ in range(topic_count):
        writer.string(reader.string())
        partition_count = reader.count(8)
        writer.count(partition_count)
        for _ in range(partition_count):
            index = reader.int32()
            reader.records()
            context.counters.count_error(error.code)
            writer.put(INT32.pack(index) + int(error.code).to_bytes(2, signed=True) + b"\xff" * 8)
            if version >= 2:
                writer.put(b"\xff" * 8)
    if version >= 1:
        writer.put(INT32.pack(0))
    reader.end_message()
    if acks == 0:
        raise _close(error)
    body = writer.getvalue()
    return [INT32.pack(4 + len(body)) + INT32.pack(header.correlation_id) + body]


API = RawApi(
    key=0,
    version_min=VERSION_MIN,
    version_max=VERSION_MAX,
    version_min_advertised=0,
    serve=_serve,
    refuse=_refuse,
)
