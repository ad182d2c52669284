"""The message routes' documents, as msgpack carries them: bodies, keys and header values are bytes, never base64.

Durations are seconds; fields at their defaults are left out. `docs/rest.md` has the same in JSON.
"""

import msgspec

from headrace.model.message import Headers
from headrace.model.queue import PRIORITY_DEFAULT


class Send(msgspec.Struct, omit_defaults=True, gc=False):
    """One message of a send."""

    body: bytes
    key: bytes | None = None
    headers: Headers = ()
    priority: int = PRIORITY_DEFAULT
    delay: float | None = None
    ttl: float | None = None
    deduplication_id: str | None = None


class SendRequest(msgspec.Struct, omit_defaults=True):
    messages: list[Send]
    request_id: str | None = None  # a second request of this id stores nothing, and gets the first one's answer


class Failure(msgspec.Struct, gc=False):
    code: str
    detail: str = ""


class SendResult(msgspec.Struct, gc=False):
    """Where a message went, or why it did not."""

    id: str = ""
    partition: int = -1
    offset: int = -1
    duplicate: bool = False
    error: Failure | None = None


class SendAnswer(msgspec.Struct):
    results: list[SendResult]


class Delivery(msgspec.Struct, gc=False):
    """One message of a receive."""

    id: str
    body: bytes
    receipt_handle: str = ""  # empty where the queue's guarantee is at most once
    key: bytes | None = None
    headers: Headers = ()
    priority: int = PRIORITY_DEFAULT
    deduplication_id: str | None = None
    sent_ms: int = 0
    attempt: int = 1
    first_received_ms: int = 0
    lease: float = 0.0
    partition: int = -1
    offset: int = -1
    first_id: str | None = None  # of a moved message, where it is another


class ReceiveAnswer(msgspec.Struct):
    messages: list[Delivery]


class AcknowledgeRequest(msgspec.Struct):
    receipt_handles: list[str]


class Extension(msgspec.Struct, gc=False):
    receipt_handle: str
    lease: float


class ExtendRequest(msgspec.Struct):
    extensions: list[Extension]


class Release(msgspec.Struct, omit_defaults=True, gc=False):
    receipt_handle: str
    delay: float | None = None  # None: the queue's back-off
    unbegun: bool = False  # visible at once, and the attempt does not count
    error: str = ""  # what the handler failed with


class ReleaseRequest(msgspec.Struct):
    releases: list[Release]


class Rejection(msgspec.Struct, gc=False):
    receipt_handle: str
    reason: str


class RejectRequest(msgspec.Struct):
    rejections: list[Rejection]


class Result(msgspec.Struct, gc=False):
    error: Failure | None = None


class Results(msgspec.Struct):
    results: list[Result]


encode = msgspec.msgpack.Encoder().encode
decode_sent = msgspec.msgpack.Decoder(SendAnswer).decode
decode_received = msgspec.msgpack.Decoder(ReceiveAnswer).decode
decode_results = msgspec.msgpack.Decoder(Results).decode
