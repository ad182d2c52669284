"""The one table from headrace's errors to SQS's."""

from collections.abc import Mapping

from headrace.gateways.http.message import RefusedError
from headrace.model import errors
from headrace.security.sigv4 import Failure, SignatureRefusedError
from headrace.wire.sqs import error as sqs
from headrace.wire.sqs.error import NO_QUEUE, ErrorKind, SqsError

KINDS: Mapping[type[errors.HeadraceError], ErrorKind] = {
    errors.HeadraceError: sqs.INTERNAL,
    errors.InvalidRequestError: sqs.INVALID_VALUE,
    errors.InvalidNameError: sqs.INVALID_VALUE,
    errors.InvalidConfigError: sqs.INVALID_ATTRIBUTE_VALUE,
    # A queue's partitions are never named in SQS, so only the node's limits can refuse them.
    errors.InvalidPartitionsError: sqs.OVER_LIMIT,
    errors.InvalidReplicationError: sqs.INVALID_VALUE,
    errors.InvalidTimestampError: sqs.INVALID_VALUE,
    errors.CorruptBatchError: sqs.INVALID_VALUE,
    errors.InvalidRecordError: sqs.INVALID_VALUE,
    errors.UnsupportedCodecError: sqs.INVALID_VALUE,
    errors.BatchTooLargeError: sqs.INVALID_VALUE,
    errors.UnknownTopicError: sqs.QUEUE_DOES_NOT_EXIST,
    errors.UnknownTopicIdError: sqs.QUEUE_DOES_NOT_EXIST,
    errors.TopicExistsError: sqs.QUEUE_NAME_EXISTS,
    errors.OffsetOutOfRangeError: sqs.INTERNAL,
    errors.FencedEpochError: sqs.UNAVAILABLE,
    errors.UnknownEpochError: sqs.UNAVAILABLE,
    errors.OutOfOrderSequenceError: sqs.INTERNAL,
    errors.DuplicateSequenceError: sqs.INTERNAL,
    errors.ProducerFencedError: sqs.INTERNAL,
    errors.UnknownProducerError: sqs.INTERNAL,
    # SQS has no transactions: none of these can come of its operations.
    errors.TransactionStateError: sqs.INTERNAL,
    errors.TransactionAbortableError: sqs.INTERNAL,
    errors.ProducerMappingError: sqs.INTERNAL,
    errors.InvalidTransactionTimeoutError: sqs.INTERNAL,
    errors.ConcurrentTransactionsError: sqs.INTERNAL,
    errors.CoordinatorFencedError: sqs.INTERNAL,
    errors.UnknownTransactionError: sqs.INTERNAL,
    errors.GroupUnsettledError: sqs.INTERNAL,
    # SDKs retry these by themselves, with back-off.
    errors.NotLeaderError: sqs.UNAVAILABLE,
    errors.PartitionOfflineError: sqs.UNAVAILABLE,
    errors.DiskFullError: sqs.UNAVAILABLE,
    errors.DiskFailedError: sqs.UNAVAILABLE,
    errors.TimedOutError: sqs.UNAVAILABLE,
    errors.ShuttingDownError: sqs.UNAVAILABLE,
    errors.StoreConflictError: sqs.UNAVAILABLE,
    errors.StoreUnavailableError: sqs.UNAVAILABLE,
    errors.OverloadedError: sqs.THROTTLED,
    errors.UnsupportedError: sqs.UNSUPPORTED,
    errors.ConfigurationError: sqs.INTERNAL,
    errors.CorruptLogError: sqs.INTERNAL,
    errors.ForeignDataError: sqs.INTERNAL,
    errors.UnknownQueueError: sqs.QUEUE_DOES_NOT_EXIST,
    errors.NotAQueueError: sqs.QUEUE_DOES_NOT_EXIST,
    errors.QueueExistsError: sqs.QUEUE_NAME_EXISTS,
    errors.TopicHasRecordsError: sqs.QUEUE_NAME_EXISTS,
    errors.InvalidReceiptError: sqs.INVALID_RECEIPT,
    # What a stale receipt means depends on the operation and on the kind of queue; this is for those that say nothing.
    errors.StaleReceiptError: sqs.NOT_IN_FLIGHT,
    errors.QueueFullError: sqs.THROTTLED,
    errors.TooManyLeasedError: sqs.OVER_LIMIT,
    errors.UnknownMessageError: sqs.NOT_IN_FLIGHT,
    errors.RedriveRunningError: sqs.INVALID_VALUE,
    errors.UnknownRedriveError: sqs.RESOURCE_NOT_FOUND,
    errors.UnknownReaderError: sqs.INVALID_VALUE,
    # SQS has no groups: none of these can come of its operations.
    errors.GroupError: sqs.INTERNAL,
    errors.InvalidGroupIdError: sqs.INTERNAL,
    errors.UnknownGroupError: sqs.INTERNAL,
    errors.GroupNotEmptyError: sqs.INTERNAL,
    errors.GroupSubscribedError: sqs.INTERNAL,
    errors.UnknownMemberError: sqs.INTERNAL,
    errors.MemberIdRequiredError: sqs.INTERNAL,
    errors.IllegalGenerationError: sqs.INTERNAL,
    errors.RebalanceInProgressError: sqs.INTERNAL,
    errors.FencedInstanceError: sqs.INTERNAL,
    errors.FencedMemberEpochError: sqs.INTERNAL,
    errors.StaleMemberEpochError: sqs.INTERNAL,
    errors.UnreleasedInstanceError: sqs.INTERNAL,
    errors.UnsupportedAssignorError: sqs.INTERNAL,
    errors.InvalidRegexError: sqs.INTERNAL,
    errors.InconsistentProtocolError: sqs.INTERNAL,
    errors.GroupFullError: sqs.INTERNAL,
    errors.InvalidSessionTimeoutError: sqs.INTERNAL,
    errors.OffsetMetadataTooLargeError: sqs.INTERNAL,
    errors.UnstableOffsetError: sqs.INTERNAL,
    errors.CoordinatorUnavailableError: sqs.UNAVAILABLE,
}

_FAILURES = {
    Failure.MISSING: sqs.MISSING_TOKEN,
    Failure.INCOMPLETE: sqs.INCOMPLETE_SIGNATURE,
    Failure.UNKNOWN_KEY: sqs.UNKNOWN_KEY,
    Failure.WRONG: sqs.WRONG_SIGNATURE,
    Failure.EXPIRED: sqs.EXPIRED,
}
# What is said of headrace's errors: the sentences of SQS's API reference. Errors speak of what SQS's clients have never
# heard of, so their own words stay within the node.
_WORDS: Mapping[ErrorKind, str] = {
    sqs.INTERNAL: "We encountered an internal error. Please try again.",
    sqs.INVALID_ATTRIBUTE_VALUE: (
        "A queue attribute value is invalid. Reason: It contradicts a setting that the queue was given outside of SQS."
    ),
    sqs.INVALID_RECEIPT: "The specified receipt handle isn't valid.",
    sqs.INVALID_VALUE: "One or more parameters are invalid.",
    sqs.NOT_IN_FLIGHT: "The specified message isn't in flight.",
    sqs.OVER_LIMIT: "The maximum number of in flight messages is reached.",
    sqs.QUEUE_DOES_NOT_EXIST: NO_QUEUE,
    sqs.QUEUE_NAME_EXISTS: "A queue with this name already exists.",
    sqs.RESOURCE_NOT_FOUND: "One or more specified resources don't exist.",
    sqs.THROTTLED: "The request was denied due to request throttling.",
    sqs.UNAVAILABLE: "The request has failed due to a temporary failure of the server.",
    sqs.UNSUPPORTED: "Unsupported operation.",
}


def kind_of(error: type[errors.HeadraceError]) -> ErrorKind:
    return next(KINDS[base] for base in error.__mro__ if base in KINDS)


_BY_CODE = {kind.code: kind for kind in KINDS}


def code_of(code: str | None) -> str:
    """SQS's code for one of headrace's."""
    return KINDS[_BY_CODE.get(code or "", errors.HeadraceError)].code


def to_sqs(error: BaseException) -> SqsError:
    """Any failure in SQS's words. What nothing here expected keeps its own words to itself."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, errors.HeadraceError):
        kind = kind_of(type(error))
        return SqsError(kind, _said(error, kind))
    if isinstance(error, SignatureRefusedError):
        return SqsError(_FAILURES[error.failure], str(error))
    if isinstance(error, RefusedError):
        return SqsError(_refused(error.status), error.detail)
    return SqsError(sqs.INTERNAL, _WORDS[sqs.INTERNAL])


def with_topic(message: str, error: errors.UnknownQueueError) -> str:
    """A sentence about a queue that does not exist, and how to convert the topic that has its name, if there is one."""
    if not isinstance(error, errors.NotAQueueError):
        return message
    return (
        f"{message} There is a Kafka topic named {error.topic}; the command `headrace queue create {error.topic}` "
        "converts it to a queue."
    )


def _said(error: errors.HeadraceError, kind: ErrorKind) -> str:
    match error:
        case errors.BatchTooLargeError():
            return "One or more parameters are invalid. Reason: Message is longer than this queue allows."
        case errors.InvalidPartitionsError():
            return "The queue cannot be created: there are as many queues and topics as the configuration allows."
        case errors.InvalidNameError():
            return "The queue name is reserved. Choose another name."
        case errors.RedriveRunningError():
            return (
                "There is already a task running. Only one active task is allowed for a source queue arn at a given "
                "time."
            )
        case errors.NotAQueueError():
            return with_topic(NO_QUEUE, error)
        case errors.TopicHasRecordsError():
            return (
                "The queue cannot be created: there is a Kafka topic of this name that holds records. The command "
                "`headrace queue create` converts it to a queue."
            )
    return _WORDS[kind]


def _refused(status: int) -> ErrorKind:
    """What the HTTP server refuses on our behalf keeps its status."""
    if status in (429, 503):
        return sqs.UNAVAILABLE
    if status >= 500:
        return sqs.INTERNAL._replace(status=status)
    return sqs.MALFORMED._replace(status=status)
