"""What goes over the wire, as structs: the shapes are checked by decoding, and the API's description is made of them.

Lengths of time are seconds; moments are milliseconds of Unix time and end in `_ms`. JSON has text and values where
MessagePack has bytes; everything else is the same in both.
"""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.model.message import HEADER_PREFIX
from headrace.model.queue import LEASE_MS_MAX, PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX

ENTRIES_MAX = 1_000
SECONDS_MAX = SPAN_MS_MAX // 1_000
LEASE_SECONDS_MAX = LEASE_MS_MAX // 1_000
TEXT_LENGTH_MAX = 1_024
HEADERS_MAX = 100
FIRST_ID = "of a moved message, where it is another: its id in the queue to which it was sent first"

# The largest whole number that every JSON library reads as it was written.
WHOLE_MAX = 2**53 - 1
# In JSON 5 and 5.0 are the same number, so whole numbers are decoded as floats that must be whole.
Whole = Annotated[float, Meta(multiple_of=1, ge=0, le=WHOLE_MAX)]
Count = Annotated[float, Meta(multiple_of=1, ge=1, le=WHOLE_MAX)]
Priority = Annotated[float, Meta(multiple_of=1, ge=0, le=PRIORITY_MAX, description="9 is handed out first; 5")]
Span = Annotated[float, Meta(ge=0, le=SECONDS_MAX, description="seconds")]
Life = Annotated[float, Meta(ge=0.001, le=SECONDS_MAX, description="seconds")]
Lease = Annotated[float, Meta(ge=0, le=LEASE_SECONDS_MAX, description="seconds")]
# Names that begin with headrace- are headrace's own.
HeaderName = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX, pattern=f"^(?!{HEADER_PREFIX})")]
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Handle = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
RequestId = Annotated[
    Text | None, Meta(description="repeat it with the same request to have it carried out once, for those without ids")
]
Reason = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
Delay = Annotated[Span | None, Meta(description="before it is visible; none: what the queue says")]
ReleaseDelay = Annotated[Span | None, Meta(description="before it is visible again; none: the queue's back-off")]
Unbegun = Annotated[bool, Meta(description="nobody has begun with it: visible at once, and no attempt is counted")]
Error = Annotated[
    str,
    Meta(
        max_length=TEXT_LENGTH_MAX,
        description="what the consumer failed with; the last one goes to the dead-letter queue with the message",
    ),
]
Ttl = Annotated[Life | None, Meta(description="after which it is dropped; none: what the queue says")]


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes in JSON that are no text."""

    base64: bytes


HeaderValue = str | Base64 | list[str | Base64]


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to be sent. Text is stored as its UTF-8, any other JSON value as JSON."""

    message: msgspec.Raw
    priority: Priority = PRIORITY_DEFAULT
    delay: Delay = None
    ttl: Ttl = None
    key: Text | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    deduplication_id: Text | None = None


class Send(msgspec.Struct, forbid_unknown_fields=True):
    """One message with its options, or several under `messages`: which of the two is found by looking."""

    message: msgspec.Raw | UnsetType = UNSET
    priority: Priority = PRIORITY_DEFAULT
    delay: Delay = None
    ttl: Ttl = None
    key: Text | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    deduplication_id: Text | None = None
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=ENTRIES_MAX)] | UnsetType = UNSET
    request_id: RequestId = None


class TextAlone(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What most sends are: one text and no options."""

    message: str


class NewMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Several messages to be sent, in this order."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=ENTRIES_MAX)]
    request_id: RequestId = None


Pairs = Annotated[tuple[tuple[HeaderName, bytes], ...], Meta(max_length=HEADERS_MAX)]


class PackedMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to be sent, in MessagePack."""

    body: bytes
    key: bytes | None = None
    headers: Pairs = ()
    priority: Priority = PRIORITY_DEFAULT
    delay: Delay = None
    ttl: Ttl = None
    deduplication_id: Text | None = None


class PackedMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Several messages to be sent, in MessagePack."""

    messages: Annotated[list[PackedMessage], Meta(min_length=1, max_length=ENTRIES_MAX)]
    request_id: RequestId = None


class Stored(msgspec.Struct, frozen=True):
    """Where a message is. A duplicate gets the place of the first one."""

    id: str
    partition: int
    offset: int
    duplicate: bool


class Failure(msgspec.Struct, frozen=True):
    """Why one entry of a batch was not done."""

    code: str
    detail: str
    retriable: bool


class SendResult(msgspec.Struct, frozen=True):
    """Where the message is, or why it is not stored."""

    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class SendResults(msgspec.Struct, frozen=True):
    """One result for each message, in their order."""

    results: list[SendResult]


class Result(msgspec.Struct, frozen=True):
    """Empty, or why it was not done."""

    error: Failure | UnsetType = UNSET


class Results(msgspec.Struct, frozen=True):
    """One result for each entry, in their order."""

    results: list[Result]


class ReceivedMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that is yours until its lease ends. Acknowledge it by its receipt handle."""

    id: Annotated[str, Meta(description="its place in this queue: partition and offset")]
    body: Any
    encoding: str | None = None  # base64, where the body is no text
    receipt_handle: str
    attempt: int
    priority: int
    sent_ms: int
    first_received_ms: int
    lease: float
    partition: int
    offset: int
    key: str | Base64 | None = None
    headers: dict[str, HeaderValue] = {}
    deduplication_id: str | None = None
    first_id: Annotated[str, Meta(description=FIRST_ID)] | None = None


class PackedReceived(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The same in MessagePack."""

    id: str
    body: bytes
    receipt_handle: str
    attempt: int
    priority: int
    sent_ms: int
    first_received_ms: int
    lease: float
    partition: int
    offset: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    deduplication_id: str | None = None
    first_id: Annotated[str, Meta(description=FIRST_ID)] | None = None


class ReceivedMessages(msgspec.Struct, frozen=True):
    """What was handed out; nothing where nothing was visible within the wait."""

    messages: list[ReceivedMessage]


class PackedReceivedMessages(msgspec.Struct, frozen=True):
    """What was handed out, in MessagePack."""

    messages: list[PackedReceived]


class Acknowledgements(msgspec.Struct, forbid_unknown_fields=True):
    receipt_handles: Annotated[list[Handle], Meta(min_length=1, max_length=ENTRIES_MAX)]


class ExtensionForm(msgspec.Struct, forbid_unknown_fields=True):
    receipt_handle: Handle
    lease: Lease


class Extensions(msgspec.Struct, forbid_unknown_fields=True):
    extensions: Annotated[list[ExtensionForm], Meta(min_length=1, max_length=ENTRIES_MAX)]


class ReleaseForm(msgspec.Struct, forbid_unknown_fields=True):
    receipt_handle: Handle
    delay: ReleaseDelay = None
    unbegun: Unbegun = False
    error: Error = ""


class Releases(msgspec.Struct, forbid_unknown_fields=True):
    releases: Annotated[list[ReleaseForm], Meta(min_length=1, max_length=ENTRIES_MAX)]


class RejectionForm(msgspec.Struct, forbid_unknown_fields=True):
    receipt_handle: Handle
    reason: Reason = "rejected"


class Rejections(msgspec.Struct, forbid_unknown_fields=True):
    rejections: Annotated[list[RejectionForm], Meta(min_length=1, max_length=ENTRIES_MAX)]


class ReleaseOptions(msgspec.Struct, forbid_unknown_fields=True):
    delay: ReleaseDelay = None
    unbegun: Unbegun = False
    error: Error = ""


class RejectOptions(msgspec.Struct, forbid_unknown_fields=True):
    reason: Reason = "rejected"


class LeaseChange(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of a lease: exactly one of the three, which are described below by themselves."""

    lease: Lease | UnsetType = UNSET
    release: ReleaseOptions | UnsetType = UNSET
    reject: RejectOptions | UnsetType = UNSET


class LeaseExtension(msgspec.Struct, forbid_unknown_fields=True):
    """Longer from now on."""

    lease: Lease


class LeaseRelease(msgspec.Struct, forbid_unknown_fields=True):
    """Given back, for others."""

    release: ReleaseOptions


class LeaseRejection(msgspec.Struct, forbid_unknown_fields=True):
    """On its way to the dead-letter queue."""

    reject: RejectOptions


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused (RFC 9457), with a code that does not change and what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retriable: Annotated[bool, Meta(description="whether the same request can succeed later")]
    field: Annotated[str, Meta(description="where in the request, of status 422 and some of 400")] | UnsetType = UNSET


def milliseconds(seconds: float) -> int:
    return round(seconds * 1_000)


def milliseconds_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)
