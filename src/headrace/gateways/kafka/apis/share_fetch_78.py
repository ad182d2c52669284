"""ShareFetch (key 78), versions 1 and 2: acknowledge what is done, and lease the next messages.

Acknowledgements are decided before messages are chosen and are durable when the answer goes out. The answer has whole
batches as they are stored, and `acquired_records` says which of their messages are the consumer's; no others are. At
most `max_records` are handed out, in either acquire mode of version 2; `batch_size` is a wish that nothing here needs,
and `min_bytes` is not waited for once there is a message: it is under lease from then on.
"""

from collections.abc import Mapping
from uuid import UUID

from headrace.broker.group.share_port import Acquisition, SharedPart
from headrace.broker.promise import Promise
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.gateways.kafka.share_request import acks_of, begin_acks, member_of, outcome_of
from headrace.gateways.kafka.share_session import CLOSING_EPOCH, OPENING_EPOCH, ShareSession
from headrace.model.ids import PartitionId
from headrace.wire.kafka.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

_SHORT_BYTES = 1024 * 1024
_NO_LEADER = LeaderIdAndEpoch(-1, -1)


async def _handle(context: Context, request: ShareFetchRequest, version: int) -> ShareFetchResponse:
    member = member_of(request.group_id, request.member_id)
    acks = acks_of(request.topics, can_renew=request.is_renew_ack)
    sessions, epoch = context.share_sessions, request.share_session_epoch
    if epoch == CLOSING_EPOCH:
        session = sessions.close(member)
        promises = begin_acks(context, session, acks)
        sessions.leave(session)
        return await _answer(context, Acquisition(0, ()), promises, {})
    wanted = _wanted(request)
    if epoch == OPENING_EPOCH:
        if acks:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a session that is being opened has nothing to acknowledge")
        session = sessions.open(member, wanted)
    else:
        session = sessions.go_on(member, epoch)
        session.update(wanted, _forgotten(request))
    promises = begin_acks(context, session, acks)
    acquisition = await _acquire(context, request, session)
    # A full request is answered for every partition that it names, a further one for those that have news.
    return await _answer(context, acquisition, promises, dict.fromkeys(wanted if epoch == OPENING_EPOCH else ()))


def _wanted(request: ShareFetchRequest) -> list[PartitionId]:
    return [
        PartitionId(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten(request: ShareFetchRequest) -> list[PartitionId]:
    return [PartitionId(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


async def _acquire(context: Context, request: ShareFetchRequest, session: ShareSession) -> Acquisition:
    limits = context.limits
    return await context.shares.acquire(
        session.holder,
        list(session.partitions),
        # Who renews wants nothing more for now, whatever else stands in the request.
        records_max=0 if request.is_renew_ack else request.max_records,
        # Where memory for answers is short, a smaller answer is one in time.
        bytes_max=min(request.max_bytes, limits.fetch_bytes_max, max(context.answers.free_bytes, _SHORT_BYTES)),
        wait_ms=min(max(request.max_wait_ms, 0), limits.fetch_wait_ms_max),
    )


async def _answer(
    context: Context,
    acquisition: Acquisition,
    promises: Mapping[PartitionId, Promise[None]],
    others: Mapping[PartitionId, None],
) -> ShareFetchResponse:
    parts = {part.place: part for part in acquisition.parts}
    topics: dict[UUID, list[PartitionData]] = {}
    for place in {**others, **dict.fromkeys(promises), **dict.fromkeys(parts)}:
        part = parts.get(place) or SharedPart(place)
        acknowledged = await outcome_of(promises.get(place))
        topics.setdefault(place.topic_id, []).append(_partition(context, part, acknowledged))
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=acquisition.lease_ms,
        responses=tuple(
            ShareFetchableTopicResponse(topic_id, tuple(partitions)) for topic_id, partitions in topics.items()
        ),
    )


def _partition(context: Context, part: SharedPart, acknowledged: BaseException | None) -> PartitionData:
    return PartitionData(
        partition_index=part.place.partition,
        error_code=outcome_code(context, part.error, is_read=True),
        error_message=None if part.error is None else message_of(part.error),
        acknowledge_error_code=outcome_code(context, acknowledged),
        acknowledge_error_message=None if acknowledged is None else message_of(acknowledged),
        current_leader=_NO_LEADER,
        records=b"".join(part.buffers),
        acquired_records=tuple(AcquiredRecords(one.first, one.last, one.attempt) for one in part.acquired),
    )


def _refuse(request: ShareFetchRequest, version: int, code: int, message: str) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code, error_message=message)


API = Api(key=78, version_min=1, version_max=2, handle=_handle, refuse=_refuse, only_waits=True)
