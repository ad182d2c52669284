"""SQS's errors: the name of each in the service model, its code in the older query protocol, and its status.

SDKs that speak JSON read the name from `__type`, and, because SQS promises the codes of its older protocol too, the
code from the header `x-amzn-query-error`. Both are in every error.
"""

from typing import NamedTuple

SENDER = "Sender"
RECEIVER = "Receiver"

_MODEL = "com.amazonaws.sqs#"
# Errors that every service of AWS has come from its framework, under the framework's own name.
_FRAMEWORK = "com.amazon.coral.service#"


class ErrorKind(NamedTuple):
    type: str  # in JSON
    code: str  # in the query protocol, and in the JSON protocol's header
    status: int = 400
    fault: str = SENDER


def _model(name: str, code: str | None = None) -> ErrorKind:
    return ErrorKind(_MODEL + name, code or name)


def _prefixed(name: str) -> ErrorKind:
    return ErrorKind(_MODEL + name, f"AWS.SimpleQueueService.{name}")


def _framework(name: str, code: str, status: int = 400, fault: str = SENDER) -> ErrorKind:
    return ErrorKind(_FRAMEWORK + name, code, status, fault)


QUEUE_DOES_NOT_EXIST = _model("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
QUEUE_NAME_EXISTS = _model("QueueNameExists", "QueueAlreadyExists")
QUEUE_DELETED_RECENTLY = _prefixed("QueueDeletedRecently")
PURGE_IN_PROGRESS = _prefixed("PurgeQueueInProgress")._replace(status=403)
IDS_NOT_DISTINCT = _prefixed("BatchEntryIdsNotDistinct")
BATCH_TOO_LONG = _prefixed("BatchRequestTooLong")
EMPTY_BATCH = _prefixed("EmptyBatchRequest")
INVALID_ENTRY_ID = _prefixed("InvalidBatchEntryId")
TOO_MANY_ENTRIES = _prefixed("TooManyEntriesInBatchRequest")
NOT_IN_FLIGHT = _prefixed("MessageNotInflight")
UNSUPPORTED = _prefixed("UnsupportedOperation")
INVALID_RECEIPT = _model("ReceiptHandleIsInvalid")
INVALID_CONTENTS = _model("InvalidMessageContents")
INVALID_ATTRIBUTE_NAME = _model("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = _model("InvalidAttributeValue")
INVALID_ADDRESS = _model("InvalidAddress")
OVER_LIMIT = ErrorKind(f"{_MODEL}OverLimit", "OverLimit", 403)
THROTTLED = ErrorKind(f"{_MODEL}RequestThrottled", "RequestThrottled", 403)
RESOURCE_NOT_FOUND = ErrorKind(f"{_MODEL}ResourceNotFoundException", "ResourceNotFoundException", 404)

INVALID_VALUE = _framework("InvalidParameterValueException", "InvalidParameterValue")
MISSING_PARAMETER = _framework("MissingRequiredParameterException", "MissingParameter")
MALFORMED = _framework("SerializationException", "MalformedInput")
UNKNOWN_OPERATION = _framework("UnknownOperationException", "InvalidAction")
MISSING_ACTION = _framework("UnknownOperationException", "MissingAction")
ACCESS_DENIED = _framework("AccessDeniedException", "AccessDenied", 403)
INTERNAL = _framework("InternalFailure", "InternalFailure", 500, RECEIVER)
UNAVAILABLE = _framework("ServiceUnavailableException", "ServiceUnavailable", 503, RECEIVER)

MISSING_TOKEN = _framework("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
INCOMPLETE_SIGNATURE = _framework("IncompleteSignatureException", "IncompleteSignature")
UNKNOWN_KEY = _framework("UnrecognizedClientException", "InvalidClientTokenId", 403)
WRONG_SIGNATURE = _framework("InvalidSignatureException", "SignatureDoesNotMatch", 403)
EXPIRED = _framework("RequestExpired", "RequestExpired")


# SDKs and their users look for this very sentence.
NO_QUEUE = "The specified queue does not exist."


class SqsError(Exception):
    """A refusal in SQS's words."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    """The commonest refusal, in the sentence that SQS has for it."""
    return SqsError(INVALID_VALUE, f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def invalid(parameter: str, reason: str) -> SqsError:
    """The same of parameters whose value SQS does not repeat."""
    return SqsError(INVALID_VALUE, f"Value for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> SqsError:
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {parameter}.")
