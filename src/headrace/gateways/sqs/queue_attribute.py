"""A queue's attributes by SQS's names: checked, turned into a queue's configuration, and read from it again.

Three kinds. Some are the queue's own settings in other units (VisibilityTimeout is its lease). Some are obeyed by this
gateway and kept in the queue's notes (MaximumMessageSize, ReceiveMessageWaitTimeSeconds). The rest nobody obeys (keys
of a key service, policies): they are kept there too, so that tools which set them and read them back are content.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.gateways.sqs.place import Places, name_of_arn
from headrace.gateways.sqs.view import stored_attributes
from headrace.model.queue import Deduplication, Guarantee, Queue, QueueConfig
from headrace.wire.sqs.check import (
    DELAY_S_MAX,
    MESSAGE_BYTES_MAX,
    RETENTION_S_MAX,
    RETENTION_S_MIN,
    VISIBILITY_S_MAX,
    WAIT_S_MAX,
)
from headrace.wire.sqs.error import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    INVALID_VALUE,
    SqsError,
    invalid_value,
)

_RANGES = {
    "DelaySeconds": (0, DELAY_S_MAX),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
    "MaximumMessageSize": (1_024, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (RETENTION_S_MIN, RETENTION_S_MAX),
    "ReceiveMessageWaitTimeSeconds": (0, WAIT_S_MAX),
    "VisibilityTimeout": (0, VISIBILITY_S_MAX),
}
_CHOICES = {
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("messageGroup", "queue"),
    "FifoQueue": ("true", "false"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("true", "false"),
}
_DOCUMENTS = frozenset({"Policy", "RedriveAllowPolicy", "RedrivePolicy"})
_TEXTS = frozenset({"KmsMasterKeyId"})
_FIFO_ONLY = ("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
SETTABLE = frozenset({*_RANGES, *_CHOICES, *_DOCUMENTS, *_TEXTS})
# What a queue keeps in its own configuration; the others are in its notes.
_OWN = frozenset(
    {
        "ContentBasedDeduplication",
        "DelaySeconds",
        "FifoQueue",
        "MessageRetentionPeriod",
        "RedrivePolicy",
        "VisibilityTimeout",
    }
)
COMPUTED = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)
_DEFAULT_NOTES = {
    "MaximumMessageSize": str(MESSAGE_BYTES_MAX),
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "false",
}
_DEFAULT_FIFO_NOTES = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
_RETENTION_S = 345_600  # four days, SQS's default and not the queues'
_RECEIVE_COUNT_MAX = 1_000
_SOURCES_MAX = 10
_DIGITS_MAX = 12
_SHOWN_MAX = 400  # characters of a policy in an error
# Of fields that are text in some tools and numbers in others.
_lenient = msgspec.json.Decoder(Any)


class RedrivePolicy(NamedTuple):
    """After how many receives a message goes where."""

    target: str
    max_receive_count: int


class RedriveAllowPolicy(NamedTuple):
    """Which queues may name this one as their dead-letter queue. None: every one."""

    sources: frozenset[str] | None


def _invalid(name: str, reason: str = "") -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}. {reason}".rstrip())


def check_attributes(attributes: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """The attributes with their values in one spelling, or a refusal."""
    return {name: _check(name, value, is_fifo=is_fifo) for name, value in attributes.items()}


def _check(name: str, value: str, *, is_fifo: bool) -> str:
    if name not in SETTABLE or (name in _FIFO_ONLY and not is_fifo):
        raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
    if name in _RANGES:
        low, high = _RANGES[name]
        if not _is_between(value, low, high):
            raise _invalid(name, f"Reason: Must be between {low} and {high}.")
        return str(int(value))
    if name in _CHOICES:
        for choice in _CHOICES[name]:
            if choice == value or (choice in ("true", "false") and choice == value.lower()):
                return choice
        raise _invalid(name, f"Reason: Must be one of {', '.join(_CHOICES[name])}.")
    # An empty text takes away what was set.
    if name == "RedrivePolicy":
        parse_redrive_policy(value)
    elif name == "RedriveAllowPolicy":
        parse_redrive_allow_policy(value)
    elif name in _DOCUMENTS and value:
        _document(name, value)
    return value


def _is_between(value: str, low: int, high: int) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and low <= int(value) <= high


def _document(name: str, value: str) -> dict[str, Any]:
    try:
        found = _lenient.decode(value.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _invalid(name, "Reason: Not a JSON object.")
    return found


def parse_redrive_policy(value: str) -> RedrivePolicy | None:
    if not value:
        return None
    policy = _document("RedrivePolicy", value)
    arn, count = policy.get("deadLetterTargetArn"), str(policy.get("maxReceiveCount", ""))
    if not isinstance(arn, str) or not arn:
        raise invalid_value(value[:_SHOWN_MAX], "RedrivePolicy", "deadLetterTargetArn is missing.")
    if not _is_between(count, 1, _RECEIVE_COUNT_MAX):
        raise invalid_value(
            value[:_SHOWN_MAX], "RedrivePolicy", f"maxReceiveCount must be between 1 and {_RECEIVE_COUNT_MAX}."
        )
    return RedrivePolicy(name_of_arn(arn, "deadLetterTargetArn"), int(count))


def parse_redrive_allow_policy(value: str) -> RedriveAllowPolicy:
    if not value:
        return RedriveAllowPolicy(None)
    policy = _document("RedriveAllowPolicy", value)
    permission, arns = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
    if not isinstance(arns, list) or not all(isinstance(arn, str) for arn in arns) or len(arns) > _SOURCES_MAX:
        raise _invalid("RedriveAllowPolicy", f"Reason: sourceQueueArns is a list of up to {_SOURCES_MAX} ARNs.")
    if permission not in ("allowAll", "denyAll", "byQueue") or (permission == "byQueue") != bool(arns):
        raise _invalid(
            "RedriveAllowPolicy",
            "Reason: redrivePermission is allowAll, denyAll, or byQueue with sourceQueueArns.",
        )
    if permission == "allowAll":
        return RedriveAllowPolicy(None)
    return RedriveAllowPolicy(frozenset(name_of_arn(arn, "sourceQueueArns") for arn in arns))


def new_config(*, is_fifo: bool) -> QueueConfig:
    """What a queue is where its creator says nothing: SQS's defaults, not headrace's."""
    return QueueConfig(
        # SQS promises of its FIFO queues that nothing is handed out twice while it is leased, whatever fails.
        guarantee=Guarantee.EXACTLY_ONCE if is_fifo else Guarantee.AT_LEAST_ONCE,
        ordered=is_fifo,
        retention_ms=_RETENTION_S * 1000,
        max_deliveries=None,
    )


def config_with(config: QueueConfig, attributes: Mapping[str, str]) -> QueueConfig:
    """A configuration with checked attributes in place of what it had."""
    changes: dict[str, Any] = {}
    for name, field in (
        ("DelaySeconds", "delay_ms"),
        ("MessageRetentionPeriod", "retention_ms"),
        ("VisibilityTimeout", "lease_ms"),
    ):
        if name in attributes:
            changes[field] = int(attributes[name]) * 1000
    if "ContentBasedDeduplication" in attributes:
        is_content = attributes["ContentBasedDeduplication"] == "true"
        changes["deduplication"] = Deduplication.CONTENT if is_content else Deduplication.ID
    if "RedrivePolicy" in attributes:
        policy = parse_redrive_policy(attributes["RedrivePolicy"])
        changes["dead_letter"] = policy.target if policy else None
        changes["max_deliveries"] = policy.max_receive_count if policy else None
    return msgspec.structs.replace(config, **changes)


def notes_with(stored: Mapping[str, str], attributes: Mapping[str, str]) -> dict[str, str]:
    """What is kept in the notes. An empty text takes an attribute away."""
    merged = {**stored, **{name: value for name, value in attributes.items() if name not in _OWN}}
    if merged.get("FifoThroughputLimit") == "perMessageGroupId" and merged.get("DeduplicationScope") != "messageGroup":
        raise SqsError(
            INVALID_VALUE,
            "The perMessageGroupId value of FifoThroughputLimit is allowed only when the value for "
            "DeduplicationScope is messageGroup.",
        )
    return {name: value for name, value in merged.items() if value}


def attributes_of(queue: Queue, places: Places) -> dict[str, str]:
    """Every attribute of a queue but the computed ones."""
    config = queue.config
    retention_s = RETENTION_S_MAX if config.retention_ms is None else config.retention_ms // 1000
    found = {
        **_DEFAULT_NOTES,
        **(_DEFAULT_FIFO_NOTES if config.ordered else {}),
        **stored_attributes(queue),
        "DelaySeconds": str(config.delay_ms // 1000),
        "MessageRetentionPeriod": str(retention_s),
        "VisibilityTimeout": str(config.lease_ms // 1000),
    }
    if config.ordered:
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = str(config.deduplication is Deduplication.CONTENT).lower()
    if config.max_deliveries is not None and queue.dead_letter_name is not None:
        policy = {"deadLetterTargetArn": places.arn(queue.dead_letter_name), "maxReceiveCount": config.max_deliveries}
        found["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    return found


def find_difference(queue: Queue, attributes: Mapping[str, str], places: Places) -> str | None:
    """The first checked attribute whose value is not the queue's. CreateQueue is idempotent where there is none."""
    own = attributes_of(queue, places)
    for name, value in attributes.items():
        if name == "RedrivePolicy":
            is_same = parse_redrive_policy(value) == parse_redrive_policy(own.get(name, ""))
        elif name in _DOCUMENTS:
            is_same = (_document(name, value) if value else {}) == (_document(name, own[name]) if name in own else {})
        elif name == "FifoQueue":
            is_same = (value == "true") == queue.config.ordered
        else:
            is_same = value == own.get(name, "")
        if not is_same:
            return name
    return None
