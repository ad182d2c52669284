"""Metadata (key 3), versions 0 to 13: which nodes there are, and who leads which partition.

A topic that is asked for and missing is created, if the request allows it (4+; earlier ones always do) and the node's
configuration does too. The answer then has the topic with its leader, not LEADER_NOT_AVAILABLE and a second round. A
topic that is there without all of its files, because a disk was full when they were to be made, gets them now.
Topics are returned with their ids from 10 and may be asked for by id from 12.

Clients ask the same again and again, so whole answers are kept, by the bytes of the request, for as long as the
catalog's revision and the nodes' addresses stay the same. Only answers that come at once are kept, none that a topic
was created for or that had a partition without a leader.
"""

from uuid import UUID

from headrace.gateways.kafka.answer import Answer, Reply
from headrace.gateways.kafka.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.gateways.kafka.body import read_body
from headrace.gateways.kafka.context import Context, RawApi
from headrace.gateways.kafka.errors import ErrorCode, code_of
from headrace.gateways.kafka.metadata_cache import MetadataCache
from headrace.model.errors import HeadraceError, InvalidRequestError, UnknownTopicError, UnknownTopicIdError
from headrace.model.names import INTERNAL_NAMES, check_topic_name
from headrace.model.topic import Topic
from headrace.wire.kafka.frame import RequestHeader, encode_response
from headrace.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID, MalformedError

VERSION_MIN = 0
VERSION_MAX = 13
_NULL_MEANS_ALL_FROM = 1
_IDS_ASKED_FROM = 12
_NULL_NAME_FROM = 12
_NO_LEADER = -1


def _serve(context: Context, header: RequestHeader, frame: bytearray) -> Reply:
    broker = context.broker
    cache: MetadataCache = context.metadata_cache
    asked = (header.api_version, bytes(frame[header.body_position :]))
    kept = cache.get(asked, broker.catalog.revision, broker.nodes())
    if kept is not None:
        return cache.frame(kept, header.correlation_id)
    request: MetadataRequest = read_body(header, frame)
    unready = _unready(context, request)
    if unready:
        return _prepare_and_answer(context, header, request, unready)
    response, keep = _respond(context, request, header.api_version, {})
    answer = _encode(header, response)
    if keep:
        cache.put(asked, broker.catalog.revision, broker.nodes(), answer)
    return [answer]


def _encode(header: RequestHeader, response: MetadataResponse) -> bytes:
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)


def _unready(context: Context, request: MetadataRequest) -> list[str]:
    """Names of topics that have to be made before the answer: missing ones, and those whose files are not all there."""
    catalog = context.broker.catalog
    names = []
    for asked in request.topics or ():
        if asked.topic_id != ZERO_UUID:
            topic = catalog.topics_by_id.get(asked.topic_id)
        else:
            topic = catalog.topics.get(asked.name or "")
            if topic is None and asked.name and request.allow_auto_topic_creation:
                names.append(asked.name)
        if topic is not None and not context.broker.is_complete(topic):
            names.append(topic.name)
    return names


async def _prepare_and_answer(
    context: Context, header: RequestHeader, request: MetadataRequest, unready: list[str]
) -> Answer:
    errors: dict[str, BaseException] = {}
    for name in unready:
        try:
            check_topic_name(name)
            await context.broker.ensure_topic(name)
        except Exception as error:  # noqa: BLE001 - becomes this topic's error; the unexpected is logged
            errors[name] = context.explain(error)
    try:
        response, _ = _respond(context, request, header.api_version, errors)
        return [_encode(header, response)]
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
        return _refuse_parsed(header, request, code_of(context.explain(error)))


def _respond(
    context: Context, request: MetadataRequest, version: int, errors: dict[str, BaseException]
) -> tuple[MetadataResponse, bool]:
    """The answer, and whether it stays true while the catalog does."""
    broker = context.broker
    topics: list[MetadataResponseTopic] = []
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    # An empty array asks for all topics in version 0, where an array cannot be null, and for none later.
    if request.topics is None or (version < _NULL_MEANS_ALL_FROM and not request.topics):
        topics = [_describe(context, topic, operations) for topic in broker.catalog.topics.values()]
    else:
        for asked in request.topics:
            try:
                topic = _find(context, asked, version, errors)
            except HeadraceError as error:
                topics.append(_failed(context, asked, version, error))
            else:
                topics.append(_describe(context, topic, operations))
    cluster_operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    response = MetadataResponse(
        brokers=tuple(MetadataResponseBroker(n.node_id, n.host, n.port, n.rack) for n in broker.nodes()),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=cluster_operations,
    )
    led = all(partition.error_code == 0 for topic in topics for partition in topic.partitions)
    return response, led


def _find(context: Context, asked: MetadataRequestTopic, version: int, errors: dict[str, BaseException]) -> Topic:
    catalog = context.broker.catalog
    if asked.topic_id != ZERO_UUID:
        if version < _IDS_ASKED_FROM:
            raise InvalidRequestError(f"Metadata {version} does not look topics up by id; use {_IDS_ASKED_FROM}")
        topic = catalog.topics_by_id.get(asked.topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"no topic has the id {asked.topic_id}")
        return topic
    if asked.name is None:
        raise InvalidRequestError("a topic was asked for with neither name nor id")
    topic = catalog.topics.get(asked.name)
    if topic is not None:
        return topic
    error = errors.get(asked.name)
    if isinstance(error, HeadraceError):
        raise error
    if error is not None:
        raise HeadraceError("the topic could not be created; the node's log has the traceback")
    check_topic_name(asked.name)
    raise UnknownTopicError(f"no topic is called {asked.name}")


def _describe(context: Context, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.id,
        topic.name in INTERNAL_NAMES,
        tuple(describe_partition(context, topic.id, index) for index in range(topic.partition_count)),
        operations,
    )


def describe_partition(context: Context, topic_id: UUID, index: int) -> MetadataResponsePartition:
    node_id = context.broker.node_id
    try:
        epoch = context.broker.partition(topic_id, index).epoch
    except HeadraceError:
        # Its disk failed, or it is not open yet.
        return MetadataResponsePartition(
            int(ErrorCode.LEADER_NOT_AVAILABLE), index, _NO_LEADER, -1, (node_id,), (node_id,), (node_id,)
        )
    return MetadataResponsePartition(0, index, node_id, epoch, (node_id,), (node_id,))


def _failed(context: Context, asked: MetadataRequestTopic, version: int, error: BaseException) -> MetadataResponseTopic:
    code = code_of(error)
    context.counters.count_error(code)
    return _empty(asked, version, code)


def _empty(asked: MetadataRequestTopic, version: int, code: int) -> MetadataResponseTopic:
    name = asked.name if asked.name is not None or version >= _NULL_NAME_FROM else ""
    return MetadataResponseTopic(code, name, asked.topic_id)


def _refuse_parsed(header: RequestHeader, request: MetadataRequest, code: int) -> Answer:
    version = header.api_version
    topics = tuple(_empty(asked, version, code) for asked in request.topics or ())
    error_code = code if version >= VERSION_MAX else 0
    return [_encode(header, MetadataResponse(topics=topics, error_code=error_code))]


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    if not VERSION_MIN <= header.api_version <= VERSION_MAX:
        raise MalformedError(f"Metadata version {header.api_version} has an unknown form")
    return _refuse_parsed(header, read_body(header, frame), code)


API = RawApi(key=3, version_min=VERSION_MIN, version_max=VERSION_MAX, serve=_serve, refuse=_refuse)
