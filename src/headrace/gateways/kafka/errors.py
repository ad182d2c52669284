"""The one table from headrace's errors to Kafka's codes.

Clients act on the code: retriable ones they retry after a look at the metadata, the others they hand to their user.
Where Kafka has no code for what happened, the table takes the one that makes clients do what headrace's error says.
"""

from collections.abc import Mapping
from enum import IntEnum

from headrace.model import errors
from headrace.wire.kafka.primitives import MalformedError


class ErrorCode(IntEnum):
    """Kafka's codes, as far as this gateway answers with them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


class RefusedError(Exception):
    """A refusal that only Kafka's protocol knows, so that only this gateway has it: a code and what to say."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


CODES: Mapping[type[errors.HeadraceError], ErrorCode] = {
    errors.HeadraceError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.InvalidRequestError: ErrorCode.INVALID_REQUEST,
    MalformedError: ErrorCode.INVALID_REQUEST,
    errors.InvalidNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidConfigError: ErrorCode.INVALID_CONFIG,
    errors.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationError: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidTimestampError: ErrorCode.INVALID_TIMESTAMP,
    errors.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidRecordError: ErrorCode.INVALID_RECORD,
    errors.UnsupportedCodecError: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.BatchTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnknownTopicError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.FencedEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequenceError: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.ProducerFencedError: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.UnknownProducerError: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.TransactionStateError: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionAbortableError: ErrorCode.TRANSACTION_ABORTABLE,
    errors.ProducerMappingError: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionTimeoutError: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.ConcurrentTransactionsError: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.CoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.UnknownTransactionError: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.PartitionOfflineError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DiskFullError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DiskFailedError: ErrorCode.KAFKA_STORAGE_ERROR,
    # Producers try again. librdkafka would give up on a produce request that is told of throttling.
    errors.OverloadedError: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.TimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    # Clients look for the leader again, find the connection closed, and come back to the node that has taken over.
    errors.ShuttingDownError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # Admin clients ask again, as after a change of controller.
    errors.StoreConflictError: ErrorCode.NOT_CONTROLLER,
    # Carried out or not, nobody knows: what Kafka says with a time-out.
    errors.StoreUnavailableError: ErrorCode.REQUEST_TIMED_OUT,
    errors.UnsupportedError: ErrorCode.UNSUPPORTED_VERSION,
    errors.ConfigurationError: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Not the retriable storage error: consumers would wait for ever and nobody would hear of the damage.
    errors.CorruptLogError: ErrorCode.CORRUPT_MESSAGE,
    errors.ForeignDataError: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Queues, as far as Kafka clients meet them: through topics that are queues, and by share groups.
    errors.UnknownQueueError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NotAQueueError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.QueueExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicHasRecordsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidReceiptError: ErrorCode.INVALID_REQUEST,
    errors.StaleReceiptError: ErrorCode.INVALID_RECORD_STATE,
    # Every producer waits a moment and sends the same batch again, as when a topic lacks replicas for a while.
    errors.QueueFullError: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.TooManyLeasedError: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.UnknownMessageError: ErrorCode.INVALID_RECORD_STATE,
    errors.RedriveRunningError: ErrorCode.INVALID_REQUEST,
    errors.UnknownRedriveError: ErrorCode.INVALID_REQUEST,
    errors.UnknownReaderError: ErrorCode.INVALID_REQUEST,
    # Groups. Clients of a group look for its coordinator again where another API's would look for a leader.
    errors.GroupError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.InvalidGroupIdError: ErrorCode.INVALID_GROUP_ID,
    errors.UnknownGroupError: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupNotEmptyError: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribedError: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.UnknownMemberError: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.MemberIdRequiredError: ErrorCode.MEMBER_ID_REQUIRED,
    errors.IllegalGenerationError: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgressError: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.FencedInstanceError: ErrorCode.FENCED_INSTANCE_ID,
    errors.FencedMemberEpochError: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpochError: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnreleasedInstanceError: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedAssignorError: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidRegexError: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InconsistentProtocolError: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.GroupFullError: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.InvalidSessionTimeoutError: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.OffsetMetadataTooLargeError: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.UnstableOffsetError: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.GroupUnsettledError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorUnavailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def code_of(error: BaseException) -> int:
    """The code to answer with. An error that no rule expected is Kafka's unknown server error."""
    if isinstance(error, RefusedError):
        return int(error.code)
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return int(code)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR)


def read_code_of(error: BaseException) -> int:
    """The code to answer a read with. Consumers give up on the one that has producers send again."""
    code = code_of(error)
    return int(ErrorCode.KAFKA_STORAGE_ERROR) if code == ErrorCode.NOT_ENOUGH_REPLICAS else code


def message_of(error: BaseException) -> str:
    """What to tell the client: our own words, never those of an exception that might quote what it should not."""
    if isinstance(error, RefusedError | errors.HeadraceError):
        return str(error)
    return "the node failed in a way that it did not expect; its log has the traceback"
