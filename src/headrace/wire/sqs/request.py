"""What each SQS operation is asked with. One struct serves both protocols: JSON is decoded to it, forms are converted.

The fields are those of the public service model, in its order; None is "not given". Ranges are not checked here, since
SQS answers a number out of its range with an error of its own (`headrace.wire.sqs.check`).
"""

import msgspec


class SqsRequest(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Any operation's input."""


class AttributeValue(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """A message attribute: its type decides which of the values it has. The list forms are reserved by SQS itself."""

    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] = []
    binary_list_values: list[bytes] = []
    data_type: str = ""


Attributes = dict[str, AttributeValue]


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One of a batch. Without an id the batch is refused; whatever else is missing fails this entry alone."""

    id: str


# Messages.


class SendMessage(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: Attributes | None = None
    message_system_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendEntry(Entry, frozen=True, kw_only=True):
    message_body: str = ""
    delay_seconds: int | None = None
    message_attributes: Attributes | None = None
    message_system_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatch(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    entries: list[SendEntry]


class ReceiveMessage(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    receipt_handle: str


class DeleteEntry(Entry, frozen=True, kw_only=True):
    receipt_handle: str = ""


class DeleteMessageBatch(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    entries: list[DeleteEntry]


class ChangeMessageVisibility(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    receipt_handle: str
    visibility_timeout: int


class VisibilityEntry(Entry, frozen=True, kw_only=True):
    receipt_handle: str = ""
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    entries: list[VisibilityEntry]


# Queues.


class CreateQueue(SqsRequest, frozen=True, kw_only=True):
    queue_name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = msgspec.field(name="tags", default_factory=dict)  # in small letters in the model


class DeleteQueue(SqsRequest, frozen=True, kw_only=True):
    queue_url: str


class PurgeQueue(SqsRequest, frozen=True, kw_only=True):
    queue_url: str


class GetQueueUrl(SqsRequest, frozen=True, kw_only=True):
    queue_name: str
    queue_owner_account_id: str | None = msgspec.field(name="QueueOwnerAWSAccountId", default=None)


class ListQueues(SqsRequest, frozen=True, kw_only=True):
    queue_name_prefix: str = ""
    next_token: str | None = None
    max_results: int | None = None


class GetQueueAttributes(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    attribute_names: list[str] = []


class SetQueueAttributes(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    attributes: dict[str, str]


class TagQueue(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    tags: dict[str, str]


class UntagQueue(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    tag_keys: list[str]


class ListQueueTags(SqsRequest, frozen=True, kw_only=True):
    queue_url: str


class AddPermission(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    label: str
    account_ids: list[str] = msgspec.field(name="AWSAccountIds")
    actions: list[str]


class RemovePermission(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    label: str


# Dead letters.


class ListDeadLetterSourceQueues(SqsRequest, frozen=True, kw_only=True):
    queue_url: str
    next_token: str | None = None
    max_results: int | None = None


class StartMessageMoveTask(SqsRequest, frozen=True, kw_only=True):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class CancelMessageMoveTask(SqsRequest, frozen=True, kw_only=True):
    task_handle: str


class ListMessageMoveTasks(SqsRequest, frozen=True, kw_only=True):
    source_arn: str
    max_results: int | None = None


BATCHES = (SendMessageBatch, DeleteMessageBatch, ChangeMessageVisibilityBatch)

OPERATIONS: dict[str, type[SqsRequest]] = {
    kind.__name__: kind
    for kind in (
        AddPermission,
        CancelMessageMoveTask,
        ChangeMessageVisibility,
        ChangeMessageVisibilityBatch,
        CreateQueue,
        DeleteMessage,
        DeleteMessageBatch,
        DeleteQueue,
        GetQueueAttributes,
        GetQueueUrl,
        ListDeadLetterSourceQueues,
        ListMessageMoveTasks,
        ListQueueTags,
        ListQueues,
        PurgeQueue,
        ReceiveMessage,
        RemovePermission,
        SendMessage,
        SendMessageBatch,
        SetQueueAttributes,
        StartMessageMoveTask,
        TagQueue,
        UntagQueue,
    )
}
