"""What each SQS operation answers. Fields that have nothing to say are left out, as SQS does."""

import msgspec

from headrace.wire.sqs.request import AttributeValue


class SqsAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """Any operation's output; this one itself where there is nothing to say."""


NOTHING = SqsAnswer()


class SentMessage(SqsAnswer, frozen=True, kw_only=True):
    md5_of_message_body: str = msgspec.field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(name="MD5OfMessageAttributes", default=None)
    md5_of_message_system_attributes: str | None = msgspec.field(name="MD5OfMessageSystemAttributes", default=None)
    message_id: str
    sequence_number: str | None = None


class SentEntry(SentMessage, frozen=True, kw_only=True):
    id: str


class DoneEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An entry of a batch that has nothing to tell but that it was done."""

    id: str


class FailedEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    id: str
    sender_fault: bool
    code: str
    message: str


class Batch(SqsAnswer, frozen=True, kw_only=True):
    """The service model calls both lists required, and SQS all the same leaves out one that is empty."""

    successful: list[SentEntry] | list[DoneEntry] = []
    failed: list[FailedEntry] = []


class ReceivedMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    message_id: str
    receipt_handle: str
    md5_of_body: str = msgspec.field(name="MD5OfBody")
    body: str
    attributes: dict[str, str] | None = None
    md5_of_message_attributes: str | None = msgspec.field(name="MD5OfMessageAttributes", default=None)
    message_attributes: dict[str, AttributeValue] | None = None


class ReceivedMessages(SqsAnswer, frozen=True, kw_only=True):
    messages: list[ReceivedMessage] | None = None


class QueueUrl(SqsAnswer, frozen=True, kw_only=True):
    queue_url: str


class QueueUrls(SqsAnswer, frozen=True, kw_only=True):
    queue_urls: list[str] | None = None
    next_token: str | None = None


class SourceQueueUrls(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    queue_urls: list[str] = msgspec.field(name="queueUrls")  # in a small letter in the model, and required
    next_token: str | None = None


class QueueAttributes(SqsAnswer, frozen=True, kw_only=True):
    attributes: dict[str, str] | None = None


class QueueTags(SqsAnswer, frozen=True, kw_only=True):
    tags: dict[str, str] | None = None


class StartedMove(SqsAnswer, frozen=True, kw_only=True):
    task_handle: str


class CancelledMove(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    approximate_number_of_messages_moved: int


class MoveTask(SqsAnswer, frozen=True, kw_only=True):
    task_handle: str | None = None  # only of one that runs: the others cannot be cancelled
    status: str
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int


class MoveTasks(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    results: list[MoveTask]


Answer = SqsAnswer | SourceQueueUrls | CancelledMove | MoveTasks
