"""Produce (key 0), versions 3 to 13: the road of every message.

Advertised from 0, because librdkafka before 2 drops gzip, snappy and lz4 from a broker that advertises from 3; below 3
messages have an older form than the one that is stored, and are refused with UNSUPPORTED_VERSION for each partition.

No task is made for a request: its record sets go to their partitions in the callback that read them, and the answer is
put together by the callback of the last append. `timeout_ms` ends the wait, not the append: REQUEST_TIMED_OUT says
*maybe*. With 0, a Kafka topic of one replica still answers success, so 0 asks for no deadline. acks=1 waits like
acks=all, for what the topic's durability asks. acks=0 has no answer; its error closes the connection, as Kafka does, so
that the client at least looks again.

A record set of a transactional producer goes by its coordinator, which confirms that the partition belongs to the
producer's transaction; from 12 the partition joins it by being sent to (KIP-890).
"""

from functools import partial
from uuid import UUID

from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.gateways.kafka.answer import Answer, CloseConnectionError, Deferred, Reply
from headrace.gateways.kafka.context import Context, RawApi
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.model.errors import InvalidNameError, InvalidRecordError, TimedOutError
from headrace.model.names import INTERNAL_NAMES
from headrace.wire.kafka.frame import RequestHeader
from headrace.wire.kafka.primitives import INT32, MalformedError, Reader, Writer
from headrace.wire.kafka.produce import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    ProduceRequest,
    ProduceResult,
    SingleRequest,
    read_request,
    read_single,
    write_response,
    write_single,
)

VERSION_MIN = 3
VERSION_MAX = 13
_JOINS_FROM = 12
_NO_OFFSET = -1


def _serve(context: Context, header: RequestHeader, frame: bytearray) -> Reply:
    _, version, correlation_id, _, position = header
    if FLEXIBLE_FROM <= version < TOPIC_IDS_FROM:
        single = read_single(frame, position)
        # With acks=0 there is no answer, and with a number that is not valid an error: the general way knows.
        if single is not None and (single.acks == -1 or single.acks == 1):
            return _serve_single(context, single, version, correlation_id)
    request = read_request(frame, position, version)
    refusal = _find_refusal(request)
    if refusal is not None:
        return _answer_all(context, header, request, refusal)
    pending = PendingProduce(context, header, request)
    transactional_id = request.transactional_id
    for at, (topic, partition, records) in enumerate(request.record_sets):
        try:
            if transactional_id is None:
                promise = _append(context, topic, partition, records)
            else:
                _check_name(topic)
                promise = context.transactions.produce(
                    transactional_id, topic, partition, records, joins=version >= _JOINS_FROM
                )
        except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
            pending.fail(at, error)
        else:
            promise.then(partial(pending.take, at))
    return _reply(context, pending, request.timeout_ms)


def _serve_single(context: Context, single: SingleRequest, version: int, correlation_id: int) -> Reply:
    _, timeout_ms, topic, partition, records = single
    pending = SingleProduce(context, topic, partition, version, correlation_id)
    try:
        promise = _append(context, topic, partition, records)
    except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
        pending.fail(error)
    else:
        promise.then(pending.take)
    return _reply(context, pending, timeout_ms)


def _reply(context: Context, pending: "SingleProduce | PendingProduce", timeout_ms: int) -> Reply:
    if not pending.done:
        limit_ms = context.limits.produce_timeout_ms_max
        if not 0 < timeout_ms <= limit_ms:
            timeout_ms = limit_ms
        context.deadlines.add(timeout_ms, pending)
        return pending
    if isinstance(pending.outcome, CloseConnectionError):
        raise pending.outcome
    return pending.outcome


def _find_refusal(request: ProduceRequest) -> RefusedError | None:
    if request.acks not in (-1, 0, 1):
        return RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is not valid; use -1 (all), 0 or 1")
    return None


def _append(context: Context, topic: str | UUID, index: int, records: memoryview) -> Promise[Appended]:
    _check_name(topic)
    partition = context.broker.partition(topic, index)
    if not records:
        raise InvalidRecordError("a record set without a batch; send at least one")
    return partition.append(records)


def _check_name(topic: str | UUID) -> None:
    if topic in INTERNAL_NAMES:
        raise InvalidNameError(f"{topic} is a topic of headrace's own; clients may read it and not write to it")


class SingleProduce(Deferred):
    """A request of one record set: what most are when messages are many and small, so it is kept short."""

    __slots__ = ("_context", "_correlation_id", "_partition", "_topic", "_version")

    def __init__(self, context: Context, topic: str, partition: int, version: int, correlation_id: int) -> None:
        self.done = False
        self.outcome = None
        self.size = 0
        self.share = None
        self._then = None
        self._context = context
        self._topic = topic
        self._partition = partition
        self._version = version
        self._correlation_id = correlation_id

    def take(self, promise: Promise[Appended]) -> None:
        error = promise.exception()
        if error is not None:
            self.fail(error)
        elif not self.done:
            base_offset, _, time_ms, start = promise.result()
            self.finish([write_single(self._topic, self._partition, base_offset, time_ms, start, self._correlation_id)])

    def fail(self, error: BaseException) -> None:
        self._context.explain(error)
        if not self.done:
            result = _failed(self._context, self._topic, self._partition, error)
            self.finish([write_response([result], self._version, self._correlation_id)])

    def time_out(self, timeout_ms: int) -> None:
        self.fail(_timed_out(timeout_ms))


class PendingProduce(Deferred):
    """A request of any number of record sets on its way through their partitions."""

    __slots__ = ("_context", "_error", "_header", "_left", "_request", "_results")

    def __init__(self, context: Context, header: RequestHeader, request: ProduceRequest) -> None:
        super().__init__()
        self._context = context
        self._header = header
        self._request = request
        self._results: list[ProduceResult | None] = [None] * len(request.record_sets)
        self._left = len(request.record_sets)
        self._error: BaseException | None = None
        if not self._left:
            self.finish(self._answer())

    def take(self, at: int, promise: Promise[Appended]) -> None:
        error = promise.exception()
        if error is not None:
            self.fail(at, error)
            return
        base_offset, _, append_time_ms, start_offset = promise.result()
        topic, partition, _ = self._request.record_sets[at]
        self._put(at, ProduceResult(topic, partition, 0, base_offset, append_time_ms, start_offset))

    def fail(self, at: int, error: BaseException) -> None:
        self._context.explain(error)
        if self._results[at] is not None:
            return
        self._error = error
        topic, partition, _ = self._request.record_sets[at]
        self._put(at, _failed(self._context, topic, partition, error))

    def _put(self, at: int, result: ProduceResult) -> None:
        # After the time-out every place is taken, and what comes later is of no use to the client.
        if self._results[at] is not None:
            return
        self._results[at] = result
        self._left -= 1
        if not self._left:
            self.finish(self._answer())

    def time_out(self, timeout_ms: int) -> None:
        for at, result in enumerate(self._results):
            if result is None:
                self.fail(at, _timed_out(timeout_ms))

    def _answer(self) -> Answer | CloseConnectionError:
        if self._request.acks == 0:
            return None if self._error is None else _close(self._error)
        results = [result for result in self._results if result is not None]
        return [write_response(results, self._header.api_version, self._header.correlation_id)]


def _timed_out(timeout_ms: int) -> TimedOutError:
    return TimedOutError(f"not stored within {timeout_ms} ms; it may still be, so look before you repeat it")


def _close(error: BaseException) -> CloseConnectionError:
    return CloseConnectionError("produce without acknowledgement failed", error=message_of(error))


def _failed(context: Context, topic: str | UUID, partition: int, error: BaseException) -> ProduceResult:
    code = code_of(error)
    context.counters.count_error(code)
    records = error.records if isinstance(error, InvalidRecordError) else ()
    return ProduceResult(topic, partition, code, _NO_OFFSET, error_message=message_of(error), record_errors=records)


def _answer_all(context: Context, header: RequestHeader, request: ProduceRequest, error: BaseException) -> Answer:
    if request.acks == 0:
        raise _close(error)
    results = [_failed(context, topic, partition, error) for topic, partition, _ in request.record_sets]
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
