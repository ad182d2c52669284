"""A queue's attributes by SQS's names: checked, turned into a queue's configuration, and read from it again.

Three kinds. Some are the queue's own settings in other units (VisibilityTimeout is its lease). Some are obeyed by this
gateway and kept in the queue's notes (MaximumMessageSize, ReceiveMessageWaitTimeSeconds). The rest nobody obeys (keys
of a key service, policies): they are kept there too, so that tools which set them and read them back are content.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.gateways.sqs.place import Places
from headrace.gateways.sqs.policy import (
    check_policy,
    parse_redrive_allow_policy,
    parse_redrive_policy,
    same_documents,
)
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
_HIGH_THROUGHPUT = ("DeduplicationScope", "FifoThroughputLimit")
_FIFO_ONLY = ("ContentBasedDeduplication", "FifoQueue", *_HIGH_THROUGHPUT)
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
_DIGITS_MAX = 12
_KEY_REUSE_S = 300  # of a queue with a key that says nothing else


def _invalid(name: str, reason: str = "") -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}. {reason}".rstrip())


def check_attributes(attributes: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """The attributes with their values in one spelling, or a refusal."""
    checked = {name: _check(name, value, is_fifo=is_fifo) for name, value in attributes.items()}
    if checked.get("KmsMasterKeyId") and checked.get("SqsManagedSseEnabled") == "true":
        raise SqsError(
            INVALID_ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE.",
        )
    return checked


def _check(name: str, value: str, *, is_fifo: bool) -> str:
    if name in _HIGH_THROUGHPUT and not is_fifo:
        raise SqsError(INVALID_ATTRIBUTE_NAME, f"You can specify the {name} only when FifoQueue is set to true.")
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
    elif name == "Policy":
        check_policy(value)
    return value


def _is_between(value: str, low: int, high: int) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX and low <= int(value) <= high


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
    # One kind of encryption at a time: the one that was set last.
    if attributes.get("KmsMasterKeyId"):
        merged["SqsManagedSseEnabled"] = "false"
    elif attributes.get("SqsManagedSseEnabled") == "true":
        merged["KmsMasterKeyId"] = ""
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
    # How long a key is reused concerns queues that have one.
    if "KmsMasterKeyId" in found:
        found.setdefault("KmsDataKeyReusePeriodSeconds", str(_KEY_REUSE_S))
    else:
        found.pop("KmsDataKeyReusePeriodSeconds", None)
    if config.ordered:
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = str(config.deduplication is Deduplication.CONTENT).lower()
    if config.max_deliveries is not None and queue.dead_letter_name is not None:
        policy = {"deadLetterTargetArn": places.arn(queue.dead_letter_name), "maxReceiveCount": config.max_deliveries}
        found["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    return found


def find_difference(queue: Queue, attributes: Mapping[str, str], places: Places) -> str | None:
    """The first checked attribute whose value is not the queue's. CreateQueue is idempotent where there is none."""
    own = {**stored_attributes(queue), **attributes_of(queue, places)}
    for name, value in attributes.items():
        if name == "RedrivePolicy":
            is_same = parse_redrive_policy(value) == parse_redrive_policy(own.get(name, ""))
        elif name in _DOCUMENTS:
            is_same = same_documents(value, own.get(name, ""))
        elif name == "FifoQueue":
            is_same = (value == "true") == queue.config.ordered
        else:
            is_same = value == own.get(name, "")
        if not is_same:
            return name
    return None
