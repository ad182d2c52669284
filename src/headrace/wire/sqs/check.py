"""SQS's own limits, which are narrower than the queues', and the sentences it refuses with.

See "Amazon SQS message quotas" and the pages of the single operations in the SQS API Reference.
"""

import re
from collections.abc import Sequence

from headrace.wire.sqs.error import (
    EMPTY_BATCH,
    IDS_NOT_DISTINCT,
    INVALID_CONTENTS,
    INVALID_ENTRY_ID,
    INVALID_VALUE,
    TOO_MANY_ENTRIES,
    SqsError,
    invalid,
    invalid_value,
    missing,
)
from headrace.wire.sqs.request import Entry

NAME_LENGTH_MAX = 80
FIFO_SUFFIX = ".fifo"
BATCH_ENTRIES_MAX = 10
MESSAGE_BYTES_MAX = 1_048_576
RECEIVE_COUNT_MAX = 10
WAIT_S_MAX = 20
DELAY_S_MAX = 900
VISIBILITY_S_MAX = 43_200
RETENTION_S_MIN, RETENTION_S_MAX = 60, 1_209_600
RESULTS_MAX = 1_000
TAGS_MAX = 50
TAG_KEY_MAX, TAG_VALUE_MAX = 128, 256
TAG_KEY_LENGTH = f"Tag keys must be between 1 and {TAG_KEY_MAX} characters in length."

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
# Letters, digits and punctuation: what group, deduplication and attempt ids may have.
_TOKEN = re.compile(r"[!-~]{1,128}")
# What UTF-8 can say and XML 1.0 does not call a character: most controls, and two code points at the end of a plane.
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r")
_NONCHARACTERS = ("\ufffe".encode(), "\uffff".encode())


def check_queue_name(name: str, *, is_fifo: bool) -> str:
    if not name:
        raise SqsError(INVALID_VALUE, "Queue name cannot be empty")
    stem = name.removesuffix(FIFO_SUFFIX) if is_fifo else name
    if len(name) > NAME_LENGTH_MAX or _NAME.fullmatch(stem) is None or is_fifo != name.endswith(FIFO_SUFFIX):
        raise SqsError(
            INVALID_VALUE,
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end "
            "with .fifo suffix and be 1 to 80 in length."
            if is_fifo
            else "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    return name


def check_range(value: int, parameter: str, low: int, high: int, reason: str | None = None) -> int:
    if not low <= value <= high:
        raise invalid_value(value, parameter, reason or f"Must be >= {low} and <= {high}, if provided.")
    return value


def check_max_results(count: int | None, high: int) -> int | None:
    if count is not None and not 1 <= count <= high:
        raise invalid("MaxResults", f"MaxResults must be an integer between 1 and {high}.")
    return count


def check_token(value: str, parameter: str) -> str:
    """A message group id, a deduplication id or an attempt id."""
    if _TOKEN.fullmatch(value) is None:
        raise invalid_value(
            value[:200],
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return value


def is_xml_text(data: bytes) -> bool:
    """Whether text in UTF-8 may stand in XML. By bytes: a scan of the characters costs four times as much."""
    if len(data.translate(None, _CONTROLS)) != len(data):
        return False
    return data.isascii() or not any(code in data for code in _NONCHARACTERS)


def no_xml_text(text: str, place: str) -> str:
    """What SQS says of text that may not stand in XML."""
    found = next(one for one in text if not is_xml_text(one.encode()))
    return (
        f"Invalid binary character '#x{ord(found):X}' was found in the {place}, the set of allowed characters is "
        "#x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def check_body(body: str) -> bytes:
    """The body's bytes."""
    if not body:
        raise missing("MessageBody")
    data = body.encode()
    if not is_xml_text(data):
        raise SqsError(INVALID_CONTENTS, no_xml_text(body, "message body"))
    return data


def check_entries(entries: Sequence[Entry], entry_name: str) -> None:
    """What makes a batch fail as a whole."""
    if not entries:
        raise SqsError(EMPTY_BATCH, f"There should be at least one {entry_name} in the request.")
    if len(entries) > BATCH_ENTRIES_MAX:
        raise SqsError(
            TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    ids: set[str] = set()
    for entry in entries:
        if _ENTRY_ID.fullmatch(entry.id) is None:
            raise SqsError(
                INVALID_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at "
                "most 80 letters long.",
            )
        if entry.id in ids:
            raise SqsError(IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        ids.add(entry.id)
