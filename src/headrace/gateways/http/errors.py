"""The one table from headrace's errors to HTTP statuses. The error's own stable code goes into the answer beside it."""

from collections.abc import Mapping

from headrace.gateways.http.message import RefusedError, Request, Response, problem, refusal
from headrace.model import errors

# A class that is not here is answered as its nearest base that is.
STATUSES: Mapping[type[errors.HeadraceError], int] = {
    errors.HeadraceError: 500,
    errors.InvalidRequestError: 400,
    errors.InvalidConfigError: 409,  # values that are valid one by one and contradict each other
    errors.BatchTooLargeError: 413,
    errors.UnknownTopicError: 404,
    errors.TopicExistsError: 409,
    errors.OffsetOutOfRangeError: 416,
    errors.FencedEpochError: 409,
    errors.UnknownEpochError: 409,
    errors.OutOfOrderSequenceError: 409,
    errors.DuplicateSequenceError: 409,
    errors.ProducerFencedError: 409,
    errors.UnknownProducerError: 409,
    errors.TransactionStateError: 409,
    errors.TransactionAbortableError: 409,
    errors.ProducerMappingError: 409,
    errors.ConcurrentTransactionsError: 409,
    errors.CoordinatorFencedError: 409,
    errors.UnknownTransactionError: 404,
    errors.NotLeaderError: 503,
    errors.PartitionOfflineError: 503,
    errors.DiskFullError: 507,
    errors.DiskFailedError: 503,
    errors.OverloadedError: 429,
    errors.TimedOutError: 504,
    errors.ShuttingDownError: 503,
    errors.StoreConflictError: 409,
    errors.StoreUnavailableError: 503,
    errors.UnsupportedError: 501,
    errors.ConfigurationError: 500,
    errors.CorruptLogError: 500,
    errors.ForeignDataError: 500,
    errors.UnknownQueueError: 404,
    errors.NotAQueueError: 404,
    errors.QueueExistsError: 409,
    errors.TopicHasRecordsError: 409,
    errors.InvalidReceiptError: 404,
    errors.StaleReceiptError: 410,
    errors.QueueFullError: 429,
    errors.TooManyLeasedError: 429,
    errors.UnknownMessageError: 404,
    errors.RedriveRunningError: 409,
    errors.UnknownRedriveError: 404,
    errors.UnknownReaderError: 404,
    errors.GroupError: 409,
    errors.InvalidGroupIdError: 400,
    errors.UnknownGroupError: 404,
    errors.UnknownMemberError: 404,
    errors.UnsupportedAssignorError: 400,
    errors.InvalidRegexError: 400,
    errors.InvalidSessionTimeoutError: 400,
    errors.OffsetMetadataTooLargeError: 413,
    errors.GroupFullError: 429,
    errors.CoordinatorUnavailableError: 503,
}
# Statuses after which a client comes back by itself, if it is told when.
_RETRY_LATER = frozenset({429, 503, 507})


def status_of(error: type[errors.HeadraceError]) -> int:
    return next(STATUSES[base] for base in error.__mro__ if base in STATUSES)


def answer_to(error: errors.HeadraceError) -> Response:
    status = status_of(type(error))
    headers = (("Retry-After", "1"),) if status in _RETRY_LATER else ()
    detail, more = _explained(error)
    return problem(status, error.code, detail, headers=headers, more={"retriable": error.retriable, **more})


def _explained(error: errors.HeadraceError) -> tuple[str, Mapping[str, str]]:
    """What to do, in terms of HTTP, and the parts of which a client makes a sentence in terms of its own."""
    match error:
        case errors.NotAQueueError():
            advice = (
                f'PUT /queues/{error.topic} with the body {{"convert": true}} makes it one, after which a message is '
                "deleted once it is acknowledged"
            )
            return f"{error}; {advice}", {"topic": error.topic}
        case errors.TopicHasRecordsError():
            return f'{error} To confirm, send the same PUT with "convert": true.', {"changes": error.changes}
    return str(error), {}


def problem_of(request: Request, error: Exception) -> Response:
    """How a route's exception is answered where the route says nothing else."""
    if isinstance(error, RefusedError):
        return refusal(error)
    if isinstance(error, errors.HeadraceError):
        return answer_to(error)
    return problem(500, "internal", f"an error that nothing here expected; the node's log has it as {request.id}")
