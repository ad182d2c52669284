"""What ShareFetch and ShareAcknowledge have in common: who asks, and what is acknowledged where."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from headrace.broker.group.share_port import AckBatch, AckType
from headrace.broker.promise import Promise
from headrace.gateways.kafka.context import Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.gateways.kafka.share_session import Member, ShareSession
from headrace.model.ids import PartitionId


class _Batch(Protocol):
    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> Sequence[int]: ...


class _Partition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def acknowledgement_batches(self) -> Sequence[_Batch]: ...


class _Topic(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sequence[_Partition]: ...


Acks = Mapping[PartitionId, Sequence[AckBatch]]


def member_of(group_id: str | None, member_id: str | None) -> Member:
    if not group_id or not member_id:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a share consumer names its group and itself")
    return Member(group_id, member_id)


def acks_of(topics: Iterable[_Topic], *, can_renew: bool) -> Acks:
    """What is acknowledged, for each partition of which something is."""
    acks: dict[PartitionId, list[AckBatch]] = {}
    for topic in topics:
        for partition in topic.partitions:
            for batch in partition.acknowledgement_batches:
                types = batch.acknowledge_types
                if not can_renew and AckType.RENEW in types:
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST, "renewals are announced by the request, and this one does not"
                    )
                place = PartitionId(topic.topic_id, partition.partition_index)
                acks.setdefault(place, []).append(AckBatch(batch.first_offset, batch.last_offset, types))
    return acks


def begin_acks(context: Context, session: ShareSession, acks: Acks) -> dict[PartitionId, Promise[None]]:
    """Have everything decided now; each promise is kept when it is durable."""
    return {place: context.shares.acknowledge(session.holder, place, batches) for place, batches in acks.items()}


async def outcome_of(promise: Promise[None] | None) -> BaseException | None:
    if promise is None:
        return None
    try:
        await promise
    except Exception as error:  # noqa: BLE001 - becomes the partition's error
        return error
    return None
