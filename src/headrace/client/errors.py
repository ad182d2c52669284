"""Errors that only a client has, and Kafka's wire errors: one table from a code to a class of the tree."""

from collections.abc import Sequence
from typing import Self

from headrace.model.errors import (
    BatchTooLargeError,
    ConcurrentTransactionsError,
    CoordinatorFencedError,
    CoordinatorUnavailableError,
    CorruptBatchError,
    DuplicateSequenceError,
    FencedEpochError,
    GroupNotEmptyError,
    GroupSubscribedError,
    HeadraceError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTransactionTimeoutError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionOfflineError,
    ProducerFencedError,
    ProducerMappingError,
    TimedOutError,
    TopicExistsError,
    TransactionAbortableError,
    TransactionStateError,
    UnknownEpochError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownProducerError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnstableOffsetError,
    UnsupportedCodecError,
    UnsupportedError,
)
from headrace.model.message import Sent

NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
UNSUPPORTED_VERSION = 35


class UnreachableError(HeadraceError):
    """No broker answers at any address that is known. Nothing was carried out."""

    code = "unreachable"
    retriable = True


class ConnectionLostError(TimedOutError):
    """The connection ended before the answer. The request may have been carried out."""

    code = "connection_lost"


class UnknownOutcomeError(TimedOutError):
    """No answer to a commit came in time: the transaction is committed, or it is not. Its `commit` may be repeated."""

    code = "unknown_outcome"


class ClosedError(HeadraceError):
    """The client is closed. Nothing was asked of anybody."""

    code = "closed"


class PartlySentError(HeadraceError):
    """Some messages of a `send_many` were not stored. `outcomes` has a place or an error for each, in order."""

    code = "partly_sent"

    def __init__(self, outcomes: Sequence[Sent | HeadraceError]) -> None:
        errors = [outcome for outcome in outcomes if isinstance(outcome, HeadraceError)]
        super().__init__(f"{len(errors)} of {len(outcomes)} messages were not sent; the first because: {errors[0]}")
        self.outcomes = outcomes

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[Sent | HeadraceError]]]:
        # An exception is made again from its text by default, and comes from pools of processes in no other way.
        return type(self), (self.outcomes,)


# The class, and what to say where the broker sent no words of its own.
_BY_CODE: dict[int, tuple[type[HeadraceError], str]] = {
    2: (CorruptBatchError, "the batch is damaged where the broker has it; the node's log names the file and the place"),
    3: (UnknownTopicError, "there is no such topic or partition; create it with `headrace topic create`"),
    5: (NotLeaderError, "the partition has no leader now; retry"),
    6: (NotLeaderError, "another node leads this partition; refresh metadata and retry there"),
    7: (TimedOutError, "the broker gave up waiting; the request may have been carried out"),
    10: (BatchTooLargeError, "the message is larger than the topic's max.message.bytes; raise that or send less"),
    14: (CoordinatorUnavailableError, "the group's coordinator is still starting; retry"),
    15: (CoordinatorUnavailableError, "the group has no coordinator now; retry"),
    16: (CoordinatorUnavailableError, "another node coordinates this group; look for it again and retry"),
    17: (InvalidNameError, "this is no topic name; use letters, digits, '.', '_' and '-'"),
    18: (BatchTooLargeError, "the batch is larger than a segment; send less at once"),
    19: (OverloadedError, "too few replicas are in sync; retry when they are back"),
    20: (TimedOutError, "too few replicas were in sync after the write; it may survive or not"),
    24: (InvalidGroupIdError, "this is no name of a group"),
    25: (UnknownMemberError, "the group has members, and this is none of them"),
    32: (InvalidTimestampError, "the topic does not allow this timestamp"),
    35: (UnsupportedError, "the broker does not speak this version"),
    36: (TopicExistsError, "the topic exists already"),
    37: (
        InvalidPartitionsError,
        "the node does not allow this number of partitions; its topics.partitions_max and topics.node_partitions_max "
        "are the limits",
    ),
    38: (InvalidReplicationError, "there are fewer nodes than replicas asked for"),
    39: (InvalidReplicationError, "this assignment of replicas cannot be"),
    40: (InvalidConfigError, "this configuration cannot be"),
    41: (NotLeaderError, "the broker is not the controller; refresh metadata and retry"),
    42: (InvalidRequestError, "the broker found the request contradictory"),
    45: (OutOfOrderSequenceError, "something that this producer sent before is missing"),
    46: (DuplicateSequenceError, "this batch was stored before"),
    47: (ProducerFencedError, "a newer instance of this producer has begun"),
    48: (TransactionStateError, "this does not fit the state of the producer's transaction; begin anew"),
    49: (ProducerMappingError, "the transactional id belongs to another producer id now; begin anew"),
    50: (InvalidTransactionTimeoutError, "the node allows no transaction so much time; ask for less"),
    51: (ConcurrentTransactionsError, "the last transaction of this producer is still being ended; retry"),
    52: (CoordinatorFencedError, "another coordinator has taken over the transaction"),
    56: (PartitionOfflineError, "the partition's disk failed at the broker; look at the node's log"),
    59: (UnknownProducerError, "the broker remembers nothing of this producer"),
    68: (GroupNotEmptyError, "the group has members; stop them first"),
    69: (UnknownGroupError, "there is no such group; `headrace group list` shows those that are there"),
    74: (FencedEpochError, "the client knows an older leader than the broker"),
    75: (UnknownEpochError, "the client knows a newer leader than the broker"),
    76: (UnsupportedCodecError, "the broker does not know this compression codec"),
    86: (GroupSubscribedError, "the group's members read this topic; stop them first"),
    87: (InvalidRecordError, "the broker refuses this record"),
    88: (UnstableOffsetError, "a transaction that is not over holds this offset; ask again"),
    89: (OverloadedError, "a quota is used up; retry later"),
    90: (ProducerFencedError, "a newer instance of this producer has begun"),
    100: (UnknownTopicIdError, "no topic has this id"),
    120: (TransactionAbortableError, "the transaction cannot go on; abort it and begin anew"),
}


def wire_error(code: int, *, subject: str, message: str | None = None, start: int = -1, end: int = -1) -> HeadraceError:
    """The error for a code, about a subject (`orders-3`). The broker's own message is kept where there is one."""
    if code == OFFSET_OUT_OF_RANGE:
        text = message or f"the offset is not between the log's start {start} and its end {end}"
        return OffsetOutOfRangeError(f"{subject}: {text}", start=start, end=end)
    kind, fallback = _BY_CODE.get(code, (HeadraceError, f"the broker answered with error code {code}"))
    return kind(f"{subject}: {message or fallback}")
