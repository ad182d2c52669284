"""AWS's API reference for SQS, what it says of messages, against a node in both protocols.

Digests and sentences are those that AWS has answered with.
"""

import pytest
from botocore.exceptions import ClientError
from tests.compat.sqs_world import World, attributes_of, bodies, create, receive


def test_what_is_empty_is_left_out(world: World, name: str) -> None:
    url = create(world, name)
    assert world.call("ReceiveMessage", QueueUrl=url) == {}
    assert world.call("GetQueueAttributes", QueueUrl=url) == {}
    assert world.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy", "RedrivePolicy"]) == {}
    assert world.call("ListQueueTags", QueueUrl=url) == {}
    assert world.call("ListQueues", QueueNamePrefix=f"{name}-absent") == {}
    world.call("SendMessage", QueueUrl=url, MessageBody="x")
    [message] = receive(world, url, AttributeNames=["SequenceNumber"], MessageAttributeNames=["absent"])
    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


HELP = {
    "Help.Me": {"DataType": "String", "StringValue": "Me"},
    "Hello": {"DataType": "String", "StringValue": "There"},
    "General": {"DataType": "String", "StringValue": "Kenobi"},
}
ALL_MD5 = "4c360f3fdafd970e05fae2f149d997f5"


@pytest.mark.parametrize(
    ("wanted", "names", "md5"),
    [
        ([], [], None),
        (["All"], ["General", "Hello", "Help.Me"], ALL_MD5),
        ([".*"], ["General", "Hello", "Help.Me"], ALL_MD5),
        (["*"], ["General", "Hello", "Help.Me"], ALL_MD5),
        (["Foo", "Help"], [], None),
        (["Hello", "General"], ["General", "Hello"], "fca026605781cb4126a1e9044df24232"),
        (["Foo", "Hello"], ["Hello"], "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], ["Hello", "Help.Me"], "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["AWS."], [], None),
        (["..foo"], [], None),
    ],
)
def test_a_receive_gets_the_attributes_that_it_names(
    world: World, name: str, wanted: list[str], names: list[str], md5: str | None
) -> None:
    url = create(world, name, VisibilityTimeout="0")
    sent = world.call("SendMessage", QueueUrl=url, MessageBody="msg", MessageAttributes=HELP)
    assert sent["MD5OfMessageAttributes"] == ALL_MD5
    message = receive(world, url, MessageAttributeNames=wanted)[0]
    assert sorted(message.get("MessageAttributes", {})) == names
    assert message.get("MD5OfMessageAttributes") == md5


def test_digests_of_bytes_and_of_system_attributes_are_those_of_aws(world: World, name: str) -> None:
    raw = {
        "DataType": "Binary",
        "BinaryValue": b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01",
    }
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    sent = world.call(
        "SendMessage",
        QueueUrl=create(world, name),
        MessageBody="test",
        MessageAttributes={"attr1": raw},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    )
    assert sent["MD5OfMessageAttributes"] == "8cbe4db156db8a94db8b801b7addb984"
    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    assert sent["MD5OfMessageBody"] == "098f6bcd4621d373cade4e832627b4f6"


SYSTEM = {"ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount", "SenderId", "SentTimestamp"}


@pytest.mark.parametrize("parameter", ["AttributeNames", "MessageSystemAttributeNames"])
def test_a_receive_gets_the_system_attributes_that_it_names_by_either_parameter(
    world: World, name: str, parameter: str
) -> None:
    url = create(world, f"{name}-{parameter}", VisibilityTimeout="0")
    world.call("SendMessage", QueueUrl=url, MessageBody="msg", MessageGroupId="tenant")

    def named(*names: str) -> set[str]:
        return set(receive(world, url, **{parameter: list(names)})[0].get("Attributes", {}))

    assert named("All") == SYSTEM | {"MessageGroupId"}
    assert named("SenderId") == {"SenderId"}
    assert named("SenderId", "SequenceNumber") == {"SenderId"}
    assert named() == set()


def test_a_fifo_message_has_its_ids_and_a_sequence_number_of_twenty_digits(world: World, name: str) -> None:
    url = create(world, f"{name}.fifo", VisibilityTimeout="0")
    message = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    first = world.call("SendMessage", MessageBody="one", **message)
    again = world.call("SendMessage", MessageBody="another", **message)
    assert len(first["SequenceNumber"]) == 20
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert again["MD5OfMessageBody"] != first["MD5OfMessageBody"]
    [got] = receive(world, url, AttributeNames=["All"])
    ids = {"MessageDeduplicationId": "d", "MessageGroupId": "g", "SequenceNumber": first["SequenceNumber"]}
    assert {name: value for name, value in got["Attributes"].items() if name not in SYSTEM} == ids


def test_a_batch_reports_each_entry_by_itself(world: World, name: str) -> None:
    url = create(world, name, MaximumMessageSize="1024")
    attribute = {"a": {"DataType": "String", "StringValue": ""}}
    answer = world.call(
        "SendMessageBatch",
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "x"},
            {"Id": "bad", "MessageBody": "\x01"},
            {"Id": "long", "MessageBody": "x" * 1025},
            {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
            {"Id": "odd", "MessageBody": "x", "MessageAttributes": attribute},
            {"Id": "typed", "MessageBody": "x", "MessageDeduplicationId": "d"},
            {"Id": "none"},
        ],
    )
    assert [set(entry) for entry in answer["Successful"]] == [{"Id", "MessageId", "MD5OfMessageBody"}]
    assert all(entry["SenderFault"] is True for entry in answer["Failed"])
    assert {entry["Id"]: (entry["Code"], entry["Message"].partition(".")[0]) for entry in answer["Failed"]} == {
        "bad": (
            "InvalidMessageContents",
            "Invalid binary character '#x1' was found in the message body, the set of allowed characters is #x9 | "
            "#xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]",
        ),
        "long": ("InvalidParameterValue", "One or more parameters cannot be validated"),
        "late": ("InvalidParameterValue", "Value 901 for parameter DelaySeconds is invalid"),
        "odd": (
            "InvalidParameterValue",
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'",
        ),
        "typed": ("InvalidParameterValue", "Value d for parameter MessageDeduplicationId is invalid"),
        "none": ("MissingParameter", "The request must contain the parameter MessageBody"),
    }
    [good] = receive(world, url, MaxNumberOfMessages=10)
    receipt = good["ReceiptHandle"]
    entries = [
        {"Id": "good", "ReceiptHandle": receipt, "VisibilityTimeout": 20},
        {"Id": "bad", "ReceiptHandle": "bad", "VisibilityTimeout": 20},
        {"Id": "none", "VisibilityTimeout": 20},
        {"Id": "unset", "ReceiptHandle": receipt},
        {"Id": "long", "ReceiptHandle": receipt, "VisibilityTimeout": 43_201},
    ]
    changed = world.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
    assert changed["Successful"] == [{"Id": "good"}]
    codes = {entry["Id"]: entry["Code"] for entry in changed["Failed"]}
    assert codes == {
        "bad": "ReceiptHandleIsInvalid",
        "none": "MissingParameter",
        "unset": "MissingParameter",
        "long": "InvalidParameterValue",
    }
    receipts = [
        {"Id": entry["Id"], **({"ReceiptHandle": entry["ReceiptHandle"]} if "ReceiptHandle" in entry else {})}
        for entry in entries[:3]
    ]
    deleted = world.call("DeleteMessageBatch", QueueUrl=url, Entries=receipts)
    assert deleted["Successful"] == [{"Id": "good"}]
    assert {entry["Id"]: entry["Code"] for entry in deleted["Failed"]} == {
        "bad": "ReceiptHandleIsInvalid",
        "none": "MissingParameter",
    }
    assert set(world.call("DeleteMessageBatch", QueueUrl=url, Entries=receipts[:1])) == {"Successful"}


def test_a_message_is_deleted_quietly_as_often_as_asked(world: World, name: str) -> None:
    url = create(world, name)
    world.call("SendMessage", QueueUrl=url, MessageBody="x")
    [message] = receive(world, url)
    for _ in range(3):
        assert world.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) == {}
    change = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 42}
    with pytest.raises(ClientError) as refusal:
        world.call("ChangeMessageVisibility", QueueUrl=url, **change)
    assert refusal.value.response["Error"]["Message"] == (
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: Message does not exist or "
        "is not available for visibility timeout change."
    )


def test_a_fifo_receipt_is_over_with_its_visibility(world: World, name: str) -> None:
    url = create(world, f"{name}.fifo", ContentBasedDeduplication="true")
    world.call("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="g")
    [message] = receive(world, url, VisibilityTimeout=0)
    with pytest.raises(ClientError) as refusal:
        world.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    error = refusal.value.response["Error"]
    reason = "The receipt handle has expired."
    words = f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: {reason}"
    assert (error["Code"], error["Message"]) == ("InvalidParameterValue", words)


@pytest.mark.parametrize("held", [0, 1, 2])
def test_a_fifo_group_waits_behind_the_message_that_is_held_longest(world: World, name: str, held: int) -> None:
    url = create(world, f"{name}-{held}.fifo", ContentBasedDeduplication="true")
    sent = ["foo", "bar", "baz"]
    for body in sent:
        world.call("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId="1")
    messages = receive(world, url, MaxNumberOfMessages=5)
    assert [message["Body"] for message in messages] == sent
    for at, message in enumerate(messages):
        if at != held:
            change = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
            world.call("ChangeMessageVisibility", QueueUrl=url, **change)
    assert bodies(world, url) == sent[:held]


def test_a_fifo_message_without_a_delay_of_its_own_has_that_of_the_queue(world: World, name: str) -> None:
    url = create(world, f"{name}.fifo", ContentBasedDeduplication="true", DelaySeconds="900")
    world.call("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="1", DelaySeconds=0)
    assert attributes_of(world, url, "ApproximateNumberOfMessagesDelayed")["ApproximateNumberOfMessagesDelayed"] == "1"


def test_a_repeated_receive_attempt_gets_the_same_messages_and_receipts(world: World, name: str) -> None:
    url = create(world, f"{name}.fifo", ContentBasedDeduplication="true")
    for body in ("a", "b"):
        world.call("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId="1")
    attempt = {"MaxNumberOfMessages": 10, "ReceiveRequestAttemptId": "try-1"}
    first, again = receive(world, url, **attempt), receive(world, url, **attempt)
    assert [message["ReceiptHandle"] for message in first] == [message["ReceiptHandle"] for message in again]
    assert receive(world, url, MaxNumberOfMessages=10, ReceiveRequestAttemptId="try-2") == []


def test_ids_count_within_a_group_where_the_queue_says_so(world: World, name: str) -> None:
    for scope, expected in (("queue", ["one"]), ("messageGroup", ["one", "two"])):
        url = create(world, f"{name}-{scope}.fifo", DeduplicationScope=scope)
        for body, group in (("one", "a"), ("two", "b"), ("three", "a")):
            world.call("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId="d")
        assert sorted(bodies(world, url)) == expected


def test_a_purge_takes_messages_in_every_state_and_forgets_deduplication_ids(world: World, name: str) -> None:
    url = create(world, f"{name}.fifo")
    message = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    world.call("SendMessage", MessageBody="before", **message)
    receive(world, url)
    world.call("PurgeQueue", QueueUrl=url)
    world.call("SendMessage", MessageBody="after", **message)
    assert bodies(world, url) == ["after"]


@pytest.mark.parametrize(
    "body", ['"&quot;&quot;\r', "a\tb\r\nc", "\U0001f600 größe \ud7ff\ue000\ufffd", "<a>&amp;</a>", " "]
)
def test_a_body_comes_back_as_it_was_sent(world: World, name: str, body: str) -> None:
    url = create(world, name, VisibilityTimeout="0")
    sent = world.call("SendMessage", QueueUrl=url, MessageBody=body)
    messages = receive(world, url, MaxNumberOfMessages=10)
    found = next(message for message in messages if message["MessageId"] == sent["MessageId"])
    assert (found["Body"], found["MD5OfBody"]) == (body, sent["MD5OfMessageBody"])


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\n", "&"])
def test_a_message_may_have_a_mebibyte_however_it_is_written_on_the_wire(world: World, name: str, letter: str) -> None:
    url = create(world, name, VisibilityTimeout="0")
    body = letter * (1_048_576 // len(letter.encode()))
    sent = world.call("SendMessage", QueueUrl=url, MessageBody=body)
    messages = receive(world, url, MaxNumberOfMessages=10)
    assert any((one["MessageId"], one["Body"]) == (sent["MessageId"], body) for one in messages)
    world.call("DeleteMessage", QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
