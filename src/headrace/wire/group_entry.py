"""Commits of groups, as they stand in the internal topic: for readers of the log that want to know how far groups were.

A control record of type 201 whose value is MessagePack: the group, its offsets (topic id, partition, offset, leader
epoch, the client's text), and the moment by the wall. `headrace.folds.group.codec` writes it.
"""

from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.model.errors import CorruptBatchError

COMMITTED_KIND = 201


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    topic_id: UUID
    partition: int
    offset: int  # that the group wants next


class _Committed(msgspec.Struct, frozen=True, array_like=True):
    group_id: str
    offsets: tuple[CommittedOffset, ...]
    at_ms: int


class GroupCommit(NamedTuple):
    group: str
    wall_ms: int
    offsets: tuple[CommittedOffset, ...]


_decode = msgspec.msgpack.Decoder(_Committed).decode


def read_commit(kind: int, value: bytes) -> GroupCommit | None:
    """None for an entry that is no commit. What a transaction commits is not: that counts when it ends."""
    if kind != COMMITTED_KIND:
        return None
    try:
        commit = _decode(value)
    except msgspec.DecodeError as error:
        raise CorruptBatchError(f"a group's control entry of type {kind} cannot be read: {error}") from error
    return GroupCommit(commit.group_id, commit.at_ms, commit.offsets)
