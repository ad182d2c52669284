"""The attributes of a queue that are JSON documents: two about its dead letters, which are obeyed, and its policy."""

import math
from typing import Any, NamedTuple

import msgspec

from headrace.wire.sqs.error import INVALID_ATTRIBUTE_VALUE, OVER_LIMIT, SqsError, invalid_value

STATEMENTS_MAX = 20

_RECEIVE_COUNT_MAX = 1_000
_SOURCES_MAX = 10
_ARN_PARTS = 6
_SHOWN_MAX = 2_000  # characters of a document in an error
_REDRIVE_KEYS = ("maxReceiveCount", "deadLetterTargetArn")
_ALLOW_KEYS = frozenset({"redrivePermission", "sourceQueueArns"})
_PERMISSIONS = frozenset({"allowAll", "denyAll", "byQueue"})
_POLICY_KEYS = frozenset({"Version", "Id", "Statement"})
_VERSIONS = frozenset({"2008-10-17", "2012-10-17"})
# Of fields that are text in some tools and numbers in others.
_lenient = msgspec.json.Decoder(Any)


class RedrivePolicy(NamedTuple):
    """After how many receives a message goes where."""

    target: str
    max_receive_count: int


class RedriveAllowPolicy(NamedTuple):
    """Which queues may name this one as their dead-letter queue. None: every one."""

    sources: frozenset[str] | None


def document(value: str) -> dict[str, Any] | None:
    """A JSON object; None where the text is none."""
    try:
        found = _lenient.decode(value.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_redrive_policy(value: str) -> RedrivePolicy | None:
    """None where an empty text takes the policy away."""
    if not value:
        return None
    policy = document(value)
    if policy is None:
        raise _malformed("RedrivePolicy", "Redrive policy is not a valid JSON map.")
    for key in _REDRIVE_KEYS:
        if key not in policy:
            raise _invalid(value, f"Redrive policy does not contain mandatory attribute: {key}.")
    if len(policy) > len(_REDRIVE_KEYS):
        raise _invalid(value, f"Only following attributes are supported: [{', '.join(_REDRIVE_KEYS)}].")
    count = _whole(policy["maxReceiveCount"])
    if not 1 <= count <= _RECEIVE_COUNT_MAX:
        shown = str(policy["maxReceiveCount"])[:_SHOWN_MAX]
        valid = f"valid values are from 1 to {_RECEIVE_COUNT_MAX} both inclusive"
        raise _invalid(value, f"Invalid value for maxReceiveCount: {shown}, {valid}.")
    return RedrivePolicy(_target(value, policy["deadLetterTargetArn"]), count)


def _target(value: str, arn: object) -> str:
    parts = arn.split(":") if isinstance(arn, str) else []
    if len(parts) != _ARN_PARTS or parts[0] != "arn" or not parts[-1]:
        raise _invalid(value, "Invalid value for deadLetterTargetArn.")
    if parts[2] != "sqs":
        raise _invalid(value, "Only SQS queues are valid resources for deadLetterTargetArn.")
    return parts[-1]


def _whole(count: object) -> int:
    """A whole number, also one in quotes, as some tools write it; -1 for anything else."""
    if isinstance(count, str):
        return int(count) if count.isascii() and count.isdigit() and len(count) <= len(str(_RECEIVE_COUNT_MAX)) else -1
    if isinstance(count, bool) or not isinstance(count, int | float) or not math.isfinite(count):
        return -1
    return int(count) if count == int(count) else -1


def _invalid(value: str, reason: str) -> SqsError:
    return invalid_value(value[:_SHOWN_MAX], "RedrivePolicy", reason)


def _malformed(name: str, reason: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}. Reason: {reason}")


def parse_redrive_allow_policy(value: str) -> RedriveAllowPolicy:
    if not value:
        return RedriveAllowPolicy(None)
    policy = document(value) or {}
    permission, arns = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    is_listed = arns is None or (isinstance(arns, list) and all(isinstance(arn, str) for arn in arns))
    if (
        not isinstance(permission, str)
        or permission not in _PERMISSIONS
        or policy.keys() - _ALLOW_KEYS
        or not is_listed
    ):
        raise _malformed(
            "RedriveAllowPolicy",
            "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format.",
        )
    if permission != "byQueue":
        if arns:
            raise _not_allowed(
                value, "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
            )
        return RedriveAllowPolicy(None if permission == "allowAll" else frozenset())
    if not arns:
        raise _not_allowed(
            value,
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        )
    if len(arns) > _SOURCES_MAX:
        raise _not_allowed(value, f"The maximum number of source queue ARNs you can specify is {_SOURCES_MAX}.")
    return RedriveAllowPolicy(frozenset(arn.rpartition(":")[2] for arn in arns))


def _not_allowed(value: str, reason: str) -> SqsError:
    whole = f"Amazon SQS can't create the redrive allow policy. {reason}"
    return invalid_value(value[:_SHOWN_MAX], "RedriveAllowPolicy", whole)


def check_policy(value: str) -> None:
    """Refuse what is no policy. No rule of a policy is obeyed, so what its statements say is not looked at."""
    if not value:
        return
    policy = document(value) or {}
    statements = policy.get("Statement")
    listed = [statements] if isinstance(statements, dict) else statements
    if (
        policy.keys() - _POLICY_KEYS
        or policy.get("Version", "2008-10-17") not in _VERSIONS
        or not isinstance(listed, list)
        or not listed
        or not all(_is_statement(statement) for statement in listed)
    ):
        raise SqsError(INVALID_ATTRIBUTE_VALUE, "Invalid value for the parameter Policy.")
    if len(listed) > STATEMENTS_MAX:
        raise SqsError(
            OVER_LIMIT,
            f"{len(listed)} statements were found in the submitted policy, max allowed is {STATEMENTS_MAX}",
        )


def _is_statement(statement: object) -> bool:
    return (
        isinstance(statement, dict)
        and statement.get("Effect") in ("Allow", "Deny")
        and ("Principal" in statement or "NotPrincipal" in statement)
        and ("Action" in statement or "NotAction" in statement)
    )


def same_documents(one: str, other: str) -> bool:
    return (document(one) or {}) == (document(other) or {})
