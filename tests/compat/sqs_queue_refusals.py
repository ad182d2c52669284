"""What the operations on whole queues refuse, and what every operation needs, a row for each statement."""

import json
from typing import Any

from tests.compat.sqs_refusal import (
    ATTRIBUTE,
    ATTRIBUTE_NAME,
    MISSING,
    NO_QUEUE,
    NO_RESOURCE,
    VALUE,
    Refusal,
)

NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo "
    "suffix and be 1 to 80 in length."
)
ONE_SSE = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
ALLOW_FORMAT = (
    "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the redrive allow policy, as "
    "it\u2019s in an unsupported format."
)
NO_ALLOW = "Amazon SQS can't create the redrive allow policy."
ARN_FORMAT = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
PER_GROUP = (
    "The perMessageGroupId value of FifoThroughputLimit is allowed only when the value for DeduplicationScope is "
    "messageGroup."
)
STATEMENT = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "<arn>"}
PERMISSION: dict[str, Any] = {
    "QueueUrl": "<queue>",
    "Label": "l",
    "AWSAccountIds": ["123456789012"],
    "Actions": ["SendMessage"],
}
MOVE = {"SourceArn": "<dead arn>"}
POLICIES: list[Any] = [
    "x",
    "[]",
    "{}",
    {"Version": "2012-10-17"},
    {"Version": "2020-01-01", "Statement": [STATEMENT]},
    {"Statement": []},
    {"Statement": "x"},
    {"Statement": [STATEMENT], "More": 1},
    {"Statement": [{**STATEMENT, "Effect": "Maybe"}]},
    {"Statement": {"Effect": "Allow", "Principal": "*"}},
    {"Statement": {"Effect": "Allow", "Action": "sqs:*"}},
]
RECEIVE = {"QueueUrl": "<queue>"}
CHANGE = {"QueueUrl": "<queue>", "ReceiptHandle": "bad"}


def attribute(name: str, value: str, *, code: str = ATTRIBUTE, message: str | None = None) -> list[Refusal]:
    """An attribute that neither CreateQueue nor SetQueueAttributes takes."""
    words = message or f"Invalid value for the parameter {name}."
    attributes = {name: value}
    return [
        Refusal("CreateQueue", {"QueueName": "new", "Attributes": attributes}, code, words),
        Refusal("SetQueueAttributes", {"QueueUrl": "<queue>", "Attributes": attributes}, code, words),
    ]


def out_of_range(name: str, low: int, high: int) -> list[Refusal]:
    words = f"Invalid value for the parameter {name}. Reason: Must be between {low} and {high}."
    wrong = (str(low - 1), str(high + 1), "", "x", "1.5", " 100")
    return [row for value in wrong for row in attribute(name, value, message=words)]


def redrive(policy: str, reason: str) -> list[Refusal]:
    message = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}"
    return attribute("RedrivePolicy", policy, code=VALUE, message=message)


def allow(policy: str, reason: str) -> list[Refusal]:
    message = f"Value {policy} for parameter RedriveAllowPolicy is invalid. Reason: {NO_ALLOW} {reason}"
    return attribute("RedriveAllowPolicy", policy, code=VALUE, message=message)


STARTS: list[tuple[dict[str, Any], str, str]] = [
    ({"SourceArn": "<arn>"}, VALUE, "Source queue must be configured as a Dead Letter Queue."),
    (
        {"DestinationArn": "x"},
        VALUE,
        f"You must use this format to specify the DestinationArn: {ARN_FORMAT}",
    ),
    (
        {"DestinationArn": "<absent arn>"},
        NO_RESOURCE,
        "The resource that you specified for the DestinationArn parameter doesn't exist.",
    ),
    (
        {"DestinationArn": "<dead arn>"},
        VALUE,
        "Source queue arn and destination queue arn cannot be the same.",
    ),
    (
        {"DestinationArn": "<fifo arn>"},
        VALUE,
        "The source queue and destination queue must be of the same queue type.",
    ),
    *(
        (
            {"MaxNumberOfMessagesPerSecond": rate},
            VALUE,
            "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: You must enter a number "
            "that's between 1 and 500.",
        )
        for rate in (0, 501)
    ),
]
QUEUE_REFUSALS = [
    # Every operation on a queue that is not there.
    *(
        Refusal(operation, {"QueueUrl": "<absent>", **more}, NO_QUEUE, "The specified queue does not exist.")
        for operation, more in {
            "AddPermission": PERMISSION | {"QueueUrl": "<absent>"},
            "ChangeMessageVisibility": {"ReceiptHandle": "x", "VisibilityTimeout": 1},
            "DeleteMessage": {"ReceiptHandle": "x"},
            "DeleteQueue": {},
            "GetQueueAttributes": {"AttributeNames": ["All"]},
            "ListDeadLetterSourceQueues": {},
            "ListQueueTags": {},
            "PurgeQueue": {},
            "ReceiveMessage": {},
            "RemovePermission": {"Label": "x"},
            "SendMessage": {"MessageBody": "x"},
            "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
            "TagQueue": {"Tags": {"a": "b"}},
            "UntagQueue": {"TagKeys": ["a"]},
        }.items()
    ),
    Refusal("GetQueueUrl", {"QueueName": "absent"}, NO_QUEUE, "The specified queue does not exist."),
    # Parameters that are required.
    *(
        Refusal(operation, parameters, MISSING, f"The request must contain the parameter {name}.")
        for operation, parameters, name in (
            ("SendMessage", {"QueueUrl": "<queue>"}, "MessageBody"),
            ("SendMessage", {"QueueUrl": "<queue>", "MessageBody": ""}, "MessageBody"),
            (
                "SendMessage",
                {"QueueUrl": "<fifo>", "MessageBody": "x", "MessageDeduplicationId": "d"},
                "MessageGroupId",
            ),
            ("SendMessage", {"MessageBody": "x"}, "QueueUrl"),
            ("ReceiveMessage", {}, "QueueUrl"),
            ("DeleteMessage", {"QueueUrl": "<queue>"}, "ReceiptHandle"),
            ("DeleteMessage", {"QueueUrl": "<queue>", "ReceiptHandle": ""}, "ReceiptHandle"),
            ("ChangeMessageVisibility", {"QueueUrl": "<queue>", "VisibilityTimeout": 1}, "ReceiptHandle"),
            ("ChangeMessageVisibility", {**CHANGE, "ReceiptHandle": "", "VisibilityTimeout": 1}, "ReceiptHandle"),
            ("ChangeMessageVisibility", CHANGE, "VisibilityTimeout"),
            ("SetQueueAttributes", {"QueueUrl": "<queue>"}, "Attribute.Name"),
            ("SetQueueAttributes", {"QueueUrl": "<queue>", "Attributes": {}}, "Attribute.Name"),
            ("TagQueue", {"QueueUrl": "<queue>"}, "Tags"),
            ("TagQueue", {"QueueUrl": "<queue>", "Tags": {}}, "Tags"),
            ("AddPermission", {**PERMISSION, "Actions": []}, "Actions"),
            ("AddPermission", {**PERMISSION, "Label": ""}, "Label"),
            ("RemovePermission", {"QueueUrl": "<queue>"}, "Label"),
            ("RemovePermission", {"QueueUrl": "<queue>", "Label": ""}, "Label"),
            ("StartMessageMoveTask", {}, "SourceArn"),
            ("ListMessageMoveTasks", {}, "SourceArn"),
            ("CancelMessageMoveTask", {}, "TaskHandle"),
        )
    ),
    Refusal("CreateQueue", {}, VALUE, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."),
    Refusal("CreateQueue", {"QueueName": ""}, VALUE, "Queue name cannot be empty"),
    Refusal("GetQueueUrl", {}, VALUE, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."),
    # Names of queues.
    *(Refusal("CreateQueue", {"QueueName": name}, VALUE, NAME) for name in ("a.b", "x.fifo", "é", "a b", "x" * 81)),
    *(
        Refusal("CreateQueue", {"QueueName": name, "Attributes": {"FifoQueue": "true"}}, VALUE, FIFO_NAME)
        for name in ("x", ".fifo", "a.b.fifo", "x" * 76 + ".fifo")
    ),
    # Attributes of queues.
    *out_of_range("DelaySeconds", 0, 900),
    *out_of_range("MaximumMessageSize", 1_024, 1_048_576),
    *out_of_range("MessageRetentionPeriod", 60, 1_209_600),
    *out_of_range("ReceiveMessageWaitTimeSeconds", 0, 20),
    *out_of_range("VisibilityTimeout", 0, 43_200),
    *out_of_range("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    *attribute("Color", "blue", code=ATTRIBUTE_NAME, message="Unknown Attribute Color."),
    *attribute("QueueArn", "x", code=ATTRIBUTE_NAME, message="Unknown Attribute QueueArn."),
    *attribute("FifoQueue", "false", code=ATTRIBUTE_NAME, message="Unknown Attribute FifoQueue."),
    *attribute(
        "ContentBasedDeduplication",
        "true",
        code=ATTRIBUTE_NAME,
        message="Unknown Attribute ContentBasedDeduplication.",
    ),
    *(
        row
        for name, value in (("DeduplicationScope", "queue"), ("FifoThroughputLimit", "perQueue"))
        for row in attribute(
            name,
            value,
            code=ATTRIBUTE_NAME,
            message=f"You can specify the {name} only when FifoQueue is set to true.",
        )
    ),
    Refusal(
        "SetQueueAttributes",
        {"QueueUrl": "<fifo>", "Attributes": {"FifoQueue": "false"}},
        ATTRIBUTE,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    Refusal(
        "SetQueueAttributes",
        {"QueueUrl": "<fifo>", "Attributes": {"FifoThroughputLimit": "perMessageGroupId"}},
        VALUE,
        PER_GROUP,
    ),
    *(
        Refusal(
            "SetQueueAttributes",
            {"QueueUrl": "<fifo>", "Attributes": {name: "maybe"}},
            ATTRIBUTE,
            f"Invalid value for the parameter {name}. Reason: Must be one of {choices}.",
        )
        for name, choices in (
            ("ContentBasedDeduplication", "true, false"),
            ("DeduplicationScope", "messageGroup, queue"),
            ("FifoThroughputLimit", "perQueue, perMessageGroupId"),
            ("SqsManagedSseEnabled", "true, false"),
        )
    ),
    *(
        Refusal(
            operation,
            {**parameters, "Attributes": {"KmsMasterKeyId": "alias/aws/sqs", "SqsManagedSseEnabled": "true"}},
            ATTRIBUTE_NAME,
            ONE_SSE,
        )
        for operation, parameters in (
            ("CreateQueue", {"QueueName": "new"}),
            ("SetQueueAttributes", {"QueueUrl": "<queue>"}),
        )
    ),
    *(
        row
        for policy in ("x", "[]", '"x"', "1")
        for row in attribute(
            "RedrivePolicy",
            policy,
            message="Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON map.",
        )
    ),
    *redrive("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
    *redrive('{"maxReceiveCount":5}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
    *(
        row
        for count in ("0", "1001", "-3", '"x"', "1.5")
        for row in redrive(
            f'{{"deadLetterTargetArn":"<dead arn>","maxReceiveCount":{count}}}',
            f"Invalid value for maxReceiveCount: {json.loads(count)}, valid values are from 1 to 1000 both inclusive.",
        )
    ),
    *redrive('{"deadLetterTargetArn":"dummy","maxReceiveCount":4}', "Invalid value for deadLetterTargetArn."),
    *redrive(
        '{"deadLetterTargetArn":"arn:aws:sns:us-east-1:000000000000:t","maxReceiveCount":4}',
        "Only SQS queues are valid resources for deadLetterTargetArn.",
    ),
    *redrive('{"deadLetterTargetArn":"<absent arn>","maxReceiveCount":4}', "Dead letter target does not exist."),
    *redrive(
        '{"deadLetterTargetArn":"<fifo arn>","maxReceiveCount":4}',
        "Dead-letter queue must be same type of queue as the source.",
    ),
    *redrive(
        '{"deadLetterTargetArn":"<dead arn>","maxReceiveCount":4,"more":1}',
        "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
    ),
    *(
        row
        for policy in (
            "x",
            "[]",
            "{}",
            '{"redrivePermission":"ALL"}',
            '{"redrivePermission":"allowAll","more":1}',
            '{"redrivePermission":"byQueue","sourceQueueArns":"<arn>"}',
            '{"redrivePermission":"byQueue","sourceQueueArns":[1]}',
        )
        for row in attribute("RedriveAllowPolicy", policy, message=ALLOW_FORMAT)
    ),
    *(
        row
        for policy in ('{"redrivePermission":"byQueue"}', '{"redrivePermission":"byQueue","sourceQueueArns":[]}')
        for row in allow(
            policy,
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        )
    ),
    *(
        row
        for permission in ("allowAll", "denyAll")
        for row in allow(
            f'{{"redrivePermission":"{permission}","sourceQueueArns":["<arn>"]}}',
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        )
    ),
    *allow(
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["<arn>"] * 11}),
        "The maximum number of source queue ARNs you can specify is 10.",
    ),
    *(
        row
        for policy in POLICIES
        for row in attribute("Policy", policy if isinstance(policy, str) else json.dumps(policy))
    ),
    *attribute(
        "Policy",
        json.dumps({"Statement": [STATEMENT] * 21}),
        code="OverLimit",
        message="21 statements were found in the submitted policy, max allowed is 20",
    ),
    *(
        Refusal(operation, {"QueueUrl": "<queue>", "AttributeNames": names}, ATTRIBUTE_NAME, "Unknown Attribute Color.")
        for operation in ("GetQueueAttributes", "ReceiveMessage")
        for names in (["Color"], ["All", "Color"])
    ),
    Refusal(
        "ReceiveMessage",
        {**RECEIVE, "MessageSystemAttributeNames": ["Color"]},
        ATTRIBUTE_NAME,
        "Unknown Attribute Color.",
    ),
    # Tags and permissions.
    Refusal(
        "TagQueue",
        {"QueueUrl": "<queue>", "Tags": {f"t{number}": "x" for number in range(51)}},
        VALUE,
        "Too many tags added for queue reference.",
    ),
    *(
        Refusal("TagQueue", {"QueueUrl": "<queue>", "Tags": {key: "x"}}, VALUE, message)
        for key, message in (
            ("", "Tag keys must be between 1 and 128 characters in length."),
            ("x" * 129, "Tag keys must be between 1 and 128 characters in length."),
            ("aws:x", "Tag keys cannot start with the reserved prefix aws:."),
        )
    ),
    Refusal(
        "TagQueue",
        {"QueueUrl": "<queue>", "Tags": {"x": "x" * 257}},
        VALUE,
        "Tag values must be between 0 and 256 characters in length.",
    ),
    *(
        Refusal("UntagQueue", parameters, VALUE, "Tag keys must be between 1 and 128 characters in length.")
        for parameters in ({"QueueUrl": "<queue>"}, {"QueueUrl": "<queue>", "TagKeys": []})
    ),
    *(
        Refusal("AddPermission", {**PERMISSION, **more}, code, message)
        for more, code, message in (
            ({"AWSAccountIds": []}, VALUE, "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."),
            (
                {"AWSAccountIds": ["1"]},
                VALUE,
                "Value [1] for parameter PrincipalId is invalid. Reason: Unable to verify.",
            ),
            (
                {"Actions": ["CreateQueue"]},
                VALUE,
                "Value SQS:CreateQueue for parameter ActionName is invalid. Reason: Only the queue owner is allowed to "
                "invoke this action.",
            ),
            (
                {"Actions": ["Nothing"]},
                VALUE,
                "Value SQS:Nothing for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL "
                "for a list of valid actions.",
            ),
            ({"Actions": ["SendMessage"] * 8}, "OverLimit", "8 Actions were found, maximum allowed is 7."),
            (
                {"Label": "a b"},
                VALUE,
                "Value a b for parameter Label is invalid. Reason: Can only include alphanumeric characters, hyphens, "
                "or underscores. 1 to 80 in length.",
            ),
        )
    ),
    Refusal(
        "RemovePermission",
        {"QueueUrl": "<queue>", "Label": "absent"},
        VALUE,
        "Value absent for parameter Label is invalid. Reason: can't find label.",
    ),
    # Lists.
    *(
        Refusal(
            operation,
            {**parameters, "MaxResults": count},
            VALUE,
            "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000.",
        )
        for operation, parameters in (("ListQueues", {}), ("ListDeadLetterSourceQueues", {"QueueUrl": "<queue>"}))
        for count in (0, -1, 1001)
    ),
    *(
        Refusal(operation, {**parameters, "NextToken": token}, VALUE, "Invalid or expired next token.")
        for operation, parameters in (("ListQueues", {}), ("ListDeadLetterSourceQueues", {"QueueUrl": "<queue>"}))
        for token in ("x", "é", "////")
    ),
    # Move tasks.
    *(
        Refusal(
            operation,
            {"SourceArn": arn},
            VALUE,
            f"You must use this format to specify the SourceArn: {ARN_FORMAT}",
        )
        for operation in ("StartMessageMoveTask", "ListMessageMoveTasks")
        for arn in ("", "x", "arn:aws:sqs:us-east-1:000000000000:")
    ),
    *(
        Refusal(
            operation,
            {"SourceArn": "<absent arn>"},
            NO_RESOURCE,
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        )
        for operation in ("StartMessageMoveTask", "ListMessageMoveTasks")
    ),
    *(Refusal("StartMessageMoveTask", {**MOVE, **more}, code, message) for more, code, message in STARTS),
    *(
        Refusal(
            "ListMessageMoveTasks",
            {**MOVE, "MaxResults": count},
            VALUE,
            "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 10.",
        )
        for count in (0, 11)
    ),
    Refusal("CancelMessageMoveTask", {"TaskHandle": "x"}, VALUE, "Value for parameter TaskHandle is invalid."),
]
