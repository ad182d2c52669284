"""The one error tree. Each class has a stable code, says whether a retry can help, and its message says what to do.

Gateways map classes to wire codes, each in one table; a test walks every class here and asks every table for it.
"""

from collections.abc import Sequence
from typing import ClassVar, Self


class HeadraceError(Exception):
    """Whatever headrace refuses or fails to do."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False


# What the caller got wrong.


class InvalidRequestError(HeadraceError):
    """The request contradicts itself or the protocol."""

    code = "invalid_request"


class InvalidNameError(InvalidRequestError):
    """A topic or queue name outside the grammar."""

    code = "invalid_name"


class InvalidConfigError(InvalidRequestError):
    """A configuration value that cannot be, with what would be valid."""

    code = "invalid_config"


class InvalidPartitionsError(InvalidRequestError):
    """A partition count or index that cannot be."""

    code = "invalid_partitions"


class InvalidReplicationError(InvalidRequestError):
    """More replicas than there are nodes, or fewer than one."""

    code = "invalid_replication"


class CorruptBatchError(InvalidRequestError):
    """A batch arrived whose checksum, magic, count or size is wrong. Nothing of it was stored."""

    code = "corrupt_batch"
    retriable = True


class InvalidRecordError(InvalidRequestError):
    """A batch that is intact and must not be stored all the same. `records` names the bad ones where they are known."""

    code = "invalid_record"

    def __init__(self, message: str, *, records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.records = records  # place in the batch, and what is wrong


class InvalidTimestampError(InvalidRecordError):
    """A timestamp that the topic does not allow."""

    code = "invalid_timestamp"


class UnsupportedCodecError(InvalidRequestError):
    """A compression codec that does not exist."""

    code = "unsupported_codec"


class BatchTooLargeError(InvalidRequestError):
    """A batch above the topic's max.message.bytes."""

    code = "batch_too_large"


class UnknownTopicError(HeadraceError):
    """No such topic or partition, by name or by id."""

    code = "unknown_topic"
    retriable = True


class UnknownTopicIdError(UnknownTopicError):
    """No topic has this id: it was deleted, or it never was."""

    code = "unknown_topic_id"


class TopicExistsError(HeadraceError):
    code = "topic_exists"


class OffsetOutOfRangeError(HeadraceError):
    """An offset below the log's start or above its end."""

    code = "offset_out_of_range"

    def __init__(self, message: str, *, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class FencedEpochError(HeadraceError):
    """The caller knows an older leader than we do."""

    code = "fenced_epoch"
    retriable = True


class UnknownEpochError(HeadraceError):
    """The caller knows a newer leader than we do."""

    code = "unknown_epoch"
    retriable = True


# Idempotent producers.


class OutOfOrderSequenceError(HeadraceError):
    """A producer's sequence has a gap: something that it sent before is missing."""

    code = "out_of_order_sequence"


class DuplicateSequenceError(HeadraceError):
    """A batch older than the window that is remembered for its producer: stored before, offset forgotten."""

    code = "duplicate_sequence"


class ProducerFencedError(HeadraceError):
    """A newer instance of this producer has begun."""

    code = "producer_fenced"


class UnknownProducerError(HeadraceError):
    """Nothing is remembered of this producer, and its first sequence here is not 0."""

    code = "unknown_producer"


# Transactions.


class TransactionStateError(HeadraceError):
    """What was asked does not fit the state of the producer's transaction: it ended, or never began."""

    code = "transaction_state"


class TransactionAbortableError(HeadraceError):
    """The transaction cannot go on, and its producer can: abort it and begin anew."""

    code = "transaction_abortable"


class ProducerMappingError(HeadraceError):
    """The producer id is not the one that belongs to the transactional id."""

    code = "producer_mapping"


class InvalidTransactionTimeoutError(InvalidRequestError):
    """A transaction's time-out outside of what the node allows."""

    code = "invalid_transaction_timeout"


class ConcurrentTransactionsError(HeadraceError):
    """The last transaction of this producer is still being ended."""

    code = "concurrent_transactions"
    retriable = True


class CoordinatorFencedError(HeadraceError):
    """A newer coordinator has taken over these transactions."""

    code = "coordinator_fenced"


class UnknownTransactionError(HeadraceError):
    """No transaction has this id, or it ended long ago."""

    code = "unknown_transaction"


# What the node cannot do now.


class NotLeaderError(HeadraceError):
    """Another node leads this partition."""

    code = "not_leader"
    retriable = True


class PartitionOfflineError(HeadraceError):
    """The partition's disk failed here. It stays closed until it is reopened and recovered."""

    code = "partition_offline"
    retriable = True


class DiskFullError(HeadraceError):
    """The disk's reserve is reached: nothing more is stored until space is freed."""

    code = "disk_full"
    retriable = True


class DiskFailedError(HeadraceError):
    """The disk refused a write for another reason than lack of space. Nothing of it was stored."""

    code = "disk_failed"
    retriable = True


class OverloadedError(HeadraceError):
    """A named limit is reached. Retry later, with back-off."""

    code = "overloaded"
    retriable = True


class TimedOutError(HeadraceError):
    """The deadline passed. The request may have been carried out: *maybe*, never *no*."""

    code = "timed_out"
    retriable = True


class ShuttingDownError(HeadraceError):
    """The node is stopping; reconnect and retry."""

    code = "shutting_down"
    retriable = True


class StoreConflictError(HeadraceError):
    """A compare in the metadata store failed: somebody else was first. Read again and decide anew."""

    code = "store_conflict"
    retriable = True


class StoreUnavailableError(HeadraceError):
    """The metadata store did not answer. The transaction may have been carried out."""

    code = "store_unavailable"
    retriable = True


class UnsupportedError(HeadraceError):
    """headrace does not do this, and says so."""

    code = "unsupported"


class ConfigurationError(HeadraceError):
    """The node's own configuration cannot be. It refuses to start, saying what and where."""

    code = "configuration"


# What the disk did.


class CorruptLogError(HeadraceError):
    """Bytes on disk are not what was written. Never cut, never served."""

    code = "corrupt_log"

    ADVICE = "restore the file from a backup or a replica, or run `headrace log verify` to see how much is damaged"

    def __init__(
        self, *, file: str, position: int, expected: object, found: object, what: str, advice: str = ADVICE
    ) -> None:
        super().__init__(f"{file} at position {position}: {what} expected {expected}, found {found}; {advice}")
        self.file = file
        self.position = position
        self.expected = expected
        self.found = found
        self.what = what


class ForeignDataError(HeadraceError):
    """The data directory belongs to another node or cluster."""

    code = "foreign_data"


# Queues.


class UnknownQueueError(HeadraceError):
    """No queue has this name."""

    code = "unknown_queue"


class NotAQueueError(UnknownQueueError):
    """A topic has this name, and it is not a queue. Each interface adds its own way to convert the topic."""

    code = "not_a_queue"
    topic = ""

    @classmethod
    def of(cls, topic: str, advice: str = "") -> Self:
        said = f"{topic} is a topic and not a queue"
        error = cls(f"{said}; {advice}" if advice else said)
        error.topic = topic
        return error


class TopicHasRecordsError(HeadraceError):
    """A topic that holds records becomes a queue only when the caller confirms it. The message says what changes."""

    code = "topic_has_records"
    changes = ""

    @classmethod
    def of(cls, changes: str, advice: str = "") -> Self:
        error = cls(f"{changes} {advice}".rstrip())
        error.changes = changes
        return error


class QueueExistsError(HeadraceError):
    """A queue of this name exists with another configuration, or is being created or deleted."""

    code = "queue_exists"


class InvalidReceiptError(InvalidRequestError):
    """A receipt that was not signed here, or belongs to another queue."""

    code = "invalid_receipt"


class StaleReceiptError(HeadraceError):
    """The lease of this receipt is over: it expired, or the message was leased again, released or acknowledged."""

    code = "stale_receipt"

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone  # the message is not in the queue any more


class QueueFullError(HeadraceError):
    """The queue holds as many messages as its policy allows."""

    code = "queue_full"
    retriable = True


class TooManyLeasedError(HeadraceError):
    """As many messages are leased as the queue allows. Acknowledge or release some."""

    code = "too_many_leased"
    retriable = True


class UnknownMessageError(HeadraceError):
    """No message has this id, or it is gone."""

    code = "unknown_message"


class RedriveRunningError(HeadraceError):
    """One redrive at a time for a queue."""

    code = "redrive_running"


class UnknownRedriveError(HeadraceError):
    """No redrive has this id, or it is over."""

    code = "unknown_redrive"


class UnknownReaderError(HeadraceError):
    """No reader of this name is registered."""

    code = "unknown_reader"


# Groups.


class GroupError(HeadraceError):
    """What a group or its coordinator refuses."""

    code = "group"


class InvalidGroupIdError(GroupError):
    """A group id that is empty where one is needed."""

    code = "invalid_group_id"


class UnknownGroupError(GroupError):
    """No group has this id."""

    code = "unknown_group"


class GroupNotEmptyError(GroupError):
    """The group has members. Stop them first."""

    code = "group_not_empty"


class GroupSubscribedError(GroupError):
    """The group's members read this topic. Stop them first."""

    code = "group_subscribed"


class UnknownMemberError(GroupError):
    """The group does not know this member: it left, or was silent for too long. Join again."""

    code = "unknown_member"


class MemberIdRequiredError(GroupError):
    """Join again with the member id that this error carries."""

    code = "member_id_required"

    def __init__(self, message: str, *, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGenerationError(GroupError):
    """The group has gone on to another generation. Join again."""

    code = "illegal_generation"


class RebalanceInProgressError(GroupError):
    """The group's partitions are being shared out anew. Join again."""

    code = "rebalance_in_progress"


class FencedInstanceError(GroupError):
    """Another member has taken over this group instance id."""

    code = "fenced_instance"


class FencedMemberEpochError(GroupError):
    """The member's epoch is not the one that the coordinator gave it last. Drop all partitions and join again."""

    code = "fenced_member_epoch"


class StaleMemberEpochError(GroupError):
    """The member's epoch has moved on. Repeat with the epoch of the latest heartbeat."""

    code = "stale_member_epoch"


class UnreleasedInstanceError(GroupError):
    """A member that has not left holds this group instance id. Stop it, or wait until its session is over."""

    code = "unreleased_instance"


class UnsupportedAssignorError(GroupError):
    """An assignor that the coordinator does not have. Use uniform or range."""

    code = "unsupported_assignor"


class InvalidRegexError(GroupError):
    """A subscription's regular expression that cannot be read, or would take too long to match."""

    code = "invalid_regex"


class InconsistentProtocolError(GroupError):
    """A member whose kind or protocols the others of its group do not share."""

    code = "inconsistent_protocol"


class GroupFullError(GroupError):
    """The group has as many members as it may have."""

    code = "group_full"


class InvalidSessionTimeoutError(GroupError):
    """A session time-out outside what this node allows."""

    code = "invalid_session_timeout"


class OffsetMetadataTooLargeError(GroupError):
    """The text beside a committed offset is too long."""

    code = "offset_metadata_too_large"


class UnstableOffsetError(GroupError):
    """A transaction that is not over has an offset for this partition. Ask again."""

    code = "unstable_offset"
    retriable = True


class GroupUnsettledError(GroupError):
    """The group is between two generations and cannot change its protocol. Ask again."""

    code = "group_unsettled"
    retriable = True


class CoordinatorUnavailableError(GroupError):
    """Whatever keeps a coordinator from answering for certain. Look for it again, and retry."""

    code = "coordinator_unavailable"
    retriable = True
