"""What sending, receiving, deleting and changing visibility refuse, a row for each statement."""

from typing import Any

from tests.compat.sqs_refusal import (
    MISSING,
    NO_QUEUE,
    PREFIX,
    VALUE,
    Refusal,
)

WRONG_TYPE = "The request include parameter that is not valid for this queue type."
TOKEN = "can only include alphanumeric and punctuation characters. 1 to 128 in length."
ENTRY_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters "
    "long."
)
NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
CONTENTS = (
    "Invalid binary character '#x1' was found in the message body, the set of allowed characters is #x9 | #xA | #xD | "
    "[#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
)
X = {"QueueUrl": "<queue>", "MessageBody": "x"}
F = {"QueueUrl": "<fifo>", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
RECEIVE = {"QueueUrl": "<queue>"}
CHANGE = {"QueueUrl": "<queue>", "ReceiptHandle": "bad"}
BLUE = {"DataType": "String", "StringValue": "blue"}


def message_attribute(name: str, value: dict[str, Any], message: str) -> Refusal:
    return Refusal("SendMessage", {**X, "MessageAttributes": {name: value}}, VALUE, message)


def entries(operation: str, **entry: str) -> list[Refusal]:
    """What makes a batch fail as a whole."""
    member = f"{operation}RequestEntry"

    def row(ids: list[str], code: str, message: str) -> Refusal:
        batch = [{"Id": id, **entry} for id in ids]
        return Refusal(operation, {"QueueUrl": "<queue>", "Entries": batch}, PREFIX + code, message)

    many = [str(number) for number in range(11)]
    return [
        row([], "EmptyBatchRequest", f"There should be at least one {member} in the request."),
        row(many, "TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent 11."),
        row(["a", "b", "a"], "BatchEntryIdsNotDistinct", "Id a repeated."),
        *(row([id], "InvalidBatchEntryId", ENTRY_ID) for id in ("", "a:b", "a b", "é", "x" * 81)),
        Refusal(
            operation,
            {"QueueUrl": "<queue>", "Entries": [{"Id": "a"}, entry]},
            MISSING,
            f"The request must contain the parameter {member}.2.Id.",
        ),
        Refusal(
            operation,
            {"QueueUrl": "<absent>", "Entries": [{"Id": "a"}]},
            NO_QUEUE,
            "The specified queue does not exist.",
        ),
    ]


MESSAGE_REFUSALS = [
    # Sending.
    *(
        Refusal(
            "SendMessage",
            {**X, "DelaySeconds": delay},
            VALUE,
            f"Value {delay} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
        )
        for delay in (-1, 901)
    ),
    Refusal(
        "SendMessage",
        {**F, "DelaySeconds": 2},
        VALUE,
        f"Value 2 for parameter DelaySeconds is invalid. Reason: {WRONG_TYPE}",
    ),
    Refusal(
        "SendMessage",
        {**X, "MessageDeduplicationId": "d"},
        VALUE,
        f"Value d for parameter MessageDeduplicationId is invalid. Reason: {WRONG_TYPE}",
    ),
    Refusal("SendMessage", {"QueueUrl": "<fifo>", "MessageBody": "x", "MessageGroupId": "g"}, VALUE, NO_DEDUPLICATION),
    *(
        Refusal(
            "SendMessage",
            {**F, name: value},
            VALUE,
            f"Value {value} for parameter {name} is invalid. Reason: {name} {TOKEN}",
        )
        for name, value in (
            ("MessageGroupId", "a" * 129),
            ("MessageGroupId", "group 1"),
            ("MessageGroupId", "é"),
            ("MessageDeduplicationId", ""),
            ("MessageDeduplicationId", "a" * 129),
            ("MessageDeduplicationId", "id 1"),
        )
    ),
    *(
        Refusal(
            "SendMessage",
            {**X, "MessageGroupId": value},
            VALUE,
            f"Value {value} for parameter MessageGroupId is invalid. Reason: MessageGroupId {TOKEN}",
        )
        for value in ("", "a" * 129, "group 1")
    ),
    Refusal("SendMessage", {**X, "MessageBody": "a\x01b"}, "InvalidMessageContents", CONTENTS),
    Refusal(
        "SendMessage", {**X, "MessageBody": "\uffff"}, "InvalidMessageContents", CONTENTS.replace("#x1'", "#xFFFF'")
    ),
    Refusal(
        "SendMessage",
        {"QueueUrl": "<small>", "MessageBody": "x" * 1025},
        VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    Refusal(
        "SendMessage",
        {"QueueUrl": "<small>", "MessageBody": "x" * 1014, "MessageAttributes": {"a": BLUE}},
        VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    Refusal(
        "SendMessage",
        {**X, "MessageAttributes": {f"a{number}": BLUE for number in range(11)}},
        VALUE,
        "Number of message attributes [11] exceeds the allowed maximum [10].",
    ),
    message_attribute(
        "a",
        {"DataType": "String", "StringValue": ""},
        "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
    ),
    message_attribute(
        "a", {"DataType": "Binary"}, "Message (user) attribute 'a' must contain a non-empty value of type 'Binary'."
    ),
    message_attribute(
        "a",
        {"DataType": "", "StringValue": "x"},
        "The message (user) attribute 'a' must contain a non-empty message attribute value.",
    ),
    message_attribute(
        "a", {"StringValue": "x"}, "The message (user) attribute 'a' must contain a non-empty message attribute value."
    ),
    message_attribute(
        "a",
        {"DataType": "Text", "StringValue": "x"},
        "The type of message (user) attribute 'a' is "
        "invalid. You must use only the following supported type prefixes: Binary, Number, String.",
    ),
    message_attribute(
        "a",
        {"DataType": "Number", "StringValue": "x"},
        "Can't cast the value of message (user) attribute 'a' to a number.",
    ),
    message_attribute("a" * 257, BLUE, "Message (user) attribute name must be shorter than 256 bytes."),
    message_attribute(
        "a",
        {"DataType": "String." + "a" * 250, "StringValue": "x"},
        "Message (user) attribute type must be shorter than 256 bytes.",
    ),
    *(
        message_attribute(
            name,
            BLUE,
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use.",
        )
        for name in ("AWS.a", "aws.a", "Amazon.a", "AMAZON.a")
    ),
    *(
        message_attribute(
            name,
            BLUE,
            f"The message (user) attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters.",
        )
        for name in ("a b", "a!", ".a", "a.", "a..b", "§")
    ),
    message_attribute("", BLUE, "The request must contain non-empty message (user) attribute names."),
    Refusal(
        "SendMessage",
        {**X, "MessageSystemAttributes": {"Color": BLUE}},
        VALUE,
        "Message system attribute name 'Color' is invalid.",
    ),
    *entries("SendMessageBatch", MessageBody="x"),
    *entries("DeleteMessageBatch", ReceiptHandle="x"),
    *entries("ChangeMessageVisibilityBatch", ReceiptHandle="x"),
    Refusal(
        "SendMessageBatch",
        {
            "QueueUrl": "<queue>",
            "Entries": [{"Id": "a", "MessageBody": "x" * 1_048_576}, {"Id": "b", "MessageBody": "x"}],
        },
        f"{PREFIX}BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    ),
    Refusal(
        "SendMessageBatch",
        {"QueueUrl": "<fifo>", "Entries": [{"Id": "a", "MessageBody": "x", "MessageDeduplicationId": "d"}]},
        MISSING,
        "The request must contain the parameter MessageGroupId.",
    ),
    Refusal(
        "SendMessageBatch",
        {"QueueUrl": "<fifo>", "Entries": [{"Id": "a", "MessageBody": "x", "MessageGroupId": "g"}]},
        VALUE,
        NO_DEDUPLICATION,
    ),
    # Receiving.
    *(
        Refusal(
            "ReceiveMessage",
            {**RECEIVE, "MaxNumberOfMessages": count},
            VALUE,
            f"Value {count} for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if "
            "provided.",
        )
        for count in (0, 11)
    ),
    *(
        Refusal(
            "ReceiveMessage",
            {**RECEIVE, name: value},
            VALUE,
            f"Value {value} for parameter {name} is invalid. Reason: Must be >= 0 and <= {high}, if provided.",
        )
        for name, high in (("WaitTimeSeconds", 20), ("VisibilityTimeout", 43_200))
        for value in (-1, high + 1)
    ),
    Refusal(
        "ReceiveMessage",
        {**RECEIVE, "ReceiveRequestAttemptId": "a"},
        VALUE,
        f"Value a for parameter ReceiveRequestAttemptId is invalid. Reason: {WRONG_TYPE}",
    ),
    Refusal(
        "ReceiveMessage",
        {"QueueUrl": "<fifo>", "ReceiveRequestAttemptId": "a b"},
        VALUE,
        f"Value a b for parameter ReceiveRequestAttemptId is invalid. Reason: ReceiveRequestAttemptId {TOKEN}",
    ),
    # Receipts.
    *(
        Refusal(
            operation,
            {**CHANGE, **more},
            "ReceiptHandleIsInvalid",
            'The input receipt handle "bad" is not a valid receipt handle.',
        )
        for operation, more in (("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 5}))
    ),
    *(
        Refusal(
            "ChangeMessageVisibility",
            {**CHANGE, "VisibilityTimeout": value},
            VALUE,
            f"Value {value} for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer "
            "between 0 and 43200.",
        )
        for value in (-1, 43_201)
    ),
]
