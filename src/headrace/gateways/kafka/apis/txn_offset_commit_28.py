"""TxnOffsetCommit (key 28), versions 0 to 5: a group's offsets, which count once the transaction commits.

Checked against the group's members and generation (3+) in the step that writes it, so that a consumer which lost its
partitions cannot commit for them (row 31), and against the producer's transaction: the group must have joined it
(AddOffsetsToTxn), or joins by this call from 5 (KIP-890).
"""

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.folds.transaction.fold import Producer
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_JOINS_FROM = 5


async def _handle(context: Context, request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
    caller = Caller(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    offsets = [
        OffsetCommit(
            topic.name,
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    outcomes = iter(await context.transactions.commit_offsets(producer, caller, offsets, joins=version >= _JOINS_FROM))
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(one.partition_index, outcome_code(context, next(outcomes)))
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _refuse(request: TxnOffsetCommitRequest, version: int, code: int, message: str) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions),
            )
            for topic in request.topics
        )
    )


API = Api(key=28, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
