"""Sending, receiving, deleting and changing visibility, through the gateway alone."""

import asyncio
import hashlib
from typing import Any

import msgspec
import pytest
from tests.gateways.sqs.door import Door, Refused

from headrace.broker.promise import Promise
from headrace.broker.queue.port import DEFAULTS
from headrace.gateways.http.message import Request
from headrace.gateways.http.router import Later
from headrace.model.errors import DiskFullError
from headrace.model.message import DEAD_SENT_HEADER, DEAD_SOURCE_HEADER, Message
from headrace.model.queue import Guarantee, QueueConfig

STRING = {"StringValue": "blue", "DataType": "String"}
HOUR_MS = 3_600_000


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def refused(door: Door, operation: str, **parameters: Any) -> str:
    with pytest.raises(Refused) as refusal:
        door.call(operation, **parameters)
    return refusal.value.code


def create_direct(door: Door, name: str, config: QueueConfig = DEFAULTS) -> str:
    """A queue that another protocol made."""
    asyncio.run(door.queues.create(name, config))
    return f"http://localhost:8080/000000000000/{name}"


def test_a_message_comes_back_with_its_digests_and_the_id_it_was_sent_with() -> None:
    door = Door()
    url = door.create("orders")
    trace = {"AWSTraceHeader": {"StringValue": "Root=1-5759e988", "DataType": "String"}}
    sent = door.call(
        "SendMessage",
        QueueUrl=url,
        MessageBody="hellö",
        MessageAttributes={"color": STRING, "raw": {"BinaryValue": "AP8=", "DataType": "Binary"}},
        MessageSystemAttributes=trace,
    )
    assert sent["MD5OfMessageBody"] == md5("hellö")
    assert "SequenceNumber" not in sent
    assert sent["MD5OfMessageSystemAttributes"]
    got = door.receive_one(url, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert got["Body"] == "hellö"
    assert got["MessageId"] == sent["MessageId"]
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got["MessageAttributes"]["raw"] == {"BinaryValue": "AP8=", "DataType": "Binary"}
    assert got["Attributes"] == {
        "AWSTraceHeader": "Root=1-5759e988",
        "SenderId": "000000000000",
        "SentTimestamp": str(door.clock.wall_ms()),
        "ApproximateReceiveCount": "1",
        "ApproximateFirstReceiveTimestamp": str(door.clock.wall_ms()),
    }


def test_the_trace_header_of_a_request_becomes_an_attribute_of_its_messages() -> None:
    door = Door()
    url = door.create("orders")
    own = {"AWSTraceHeader": {"StringValue": "Root=own", "DataType": "String"}}
    entries = [
        {"Id": "a", "MessageBody": "plain"},
        {"Id": "b", "MessageBody": "traced", "MessageSystemAttributes": own},
    ]
    door.headers["x-amzn-trace-id"] = "Root=1-5759e988;Sampled=1"
    door.call("SendMessage", QueueUrl=url, MessageBody="single")
    batch = door.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert ["MD5OfMessageSystemAttributes" in entry for entry in batch["Successful"]] == [False, True]
    door.form({"Action": "SendMessage", "MessageBody": "form"}, queue="orders")
    for odd, body in (("\x01", "odd"), ("", "none")):
        door.headers["x-amzn-trace-id"] = odd
        door.call("SendMessage", QueueUrl=url, MessageBody=body)
    got = door.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["AWSTraceHeader"])
    assert {one["Body"]: one.get("Attributes", {}).get("AWSTraceHeader") for one in got["Messages"]} == {
        "single": "Root=1-5759e988;Sampled=1",
        "plain": "Root=1-5759e988;Sampled=1",
        "traced": "Root=own",
        "form": "Root=1-5759e988;Sampled=1",
        "odd": None,
        "none": None,
    }


def test_a_trace_does_not_count_towards_the_limit_of_size() -> None:
    door = Door()
    url = door.create("orders", MaximumMessageSize="1024")
    door.headers["x-amzn-trace-id"] = "Root=1"
    door.call("SendMessage", QueueUrl=url, MessageBody="x" * 1024)


def test_message_ids_have_the_form_of_a_uuid_and_are_distinct_between_queues() -> None:
    door = Door()
    urls = [door.create("one"), door.create("two")]
    ids = {door.call("SendMessage", QueueUrl=url, MessageBody="x")["MessageId"] for url in urls * 3}
    assert len(ids) == 6
    assert all([len(part) for part in id.split("-")] == [8, 4, 4, 4, 12] for id in ids)


def test_a_receive_gets_only_what_it_asks_for() -> None:
    door = Door()
    url = door.create("orders")
    door.call("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes={"color": STRING, "size": STRING})
    plain = door.receive_one(url, VisibilityTimeout=0)
    assert set(plain) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    some = door.receive_one(url, MessageSystemAttributeNames=["SenderId"], MessageAttributeNames=["color"])
    assert set(some["Attributes"]) == {"SenderId"}
    assert set(some["MessageAttributes"]) == {"color"}


def test_an_empty_receive_has_no_messages_at_all() -> None:
    door = Door()
    assert door.call("ReceiveMessage", QueueUrl=door.create("orders")) == {}


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({}, "MissingParameter"),
        ({"MessageBody": "bell \a"}, "InvalidMessageContents"),
        ({"MessageBody": "\ufffe"}, "InvalidMessageContents"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "x", "DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageBody": "x" * 1_048_577}, "InvalidParameterValue"),
        ({"MessageBody": "x" * 1_048_570, "MessageAttributes": {"color": STRING}}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageDeduplicationId": "1"}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageGroupId": "a b"}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageGroupId": "g" * 129}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Nothing"}}}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageSystemAttributes": {"a": STRING}}, "InvalidParameterValue"),
    ],
)
def test_a_message_that_sqs_refuses_is_refused(parameters: dict[str, Any], code: str) -> None:
    door = Door()
    assert refused(door, "SendMessage", QueueUrl=door.create("orders"), **parameters) == code


def test_a_message_of_exactly_the_largest_size_is_taken() -> None:
    door = Door()
    url = door.create("orders")
    body = "x" * (1_048_576 - len("colorStringblue"))
    door.call("SendMessage", QueueUrl=url, MessageBody=body, MessageAttributes={"color": STRING})


def test_the_queues_own_limit_of_size_is_obeyed() -> None:
    door = Door()
    url = door.create("orders", MaximumMessageSize="1024")
    door.call("SendMessage", QueueUrl=url, MessageBody="x" * 1024)
    assert refused(door, "SendMessage", QueueUrl=url, MessageBody="x" * 1025) == "InvalidParameterValue"


@pytest.mark.parametrize(
    "parameters",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"VisibilityTimeout": 43_201},
        {"VisibilityTimeout": -1},
        {"ReceiveRequestAttemptId": "again"},
    ],
)
def test_a_receive_beyond_the_limits_is_refused(parameters: dict[str, Any]) -> None:
    door = Door()
    assert refused(door, "ReceiveMessage", QueueUrl=door.create("orders"), **parameters) == "InvalidParameterValue"


def test_an_unknown_attribute_of_messages_is_refused() -> None:
    door = Door()
    assert (
        refused(door, "ReceiveMessage", QueueUrl=door.create("a"), AttributeNames=["Nonsense"])
        == "InvalidAttributeName"
    )


def test_no_operation_on_messages_makes_a_queue() -> None:
    door = Door()
    url = "http://localhost:8080/000000000000/absent"
    missing = "AWS.SimpleQueueService.NonExistentQueue"
    assert refused(door, "SendMessage", QueueUrl=url, MessageBody="x") == missing
    assert refused(door, "ReceiveMessage", QueueUrl=url) == missing
    assert refused(door, "DeleteMessage", QueueUrl=url, ReceiptHandle="x") == missing
    assert door.queues.shelves == {}


def test_the_queues_wait_holds_where_a_receive_says_nothing() -> None:
    door = Door()
    url = door.create("orders", ReceiveMessageWaitTimeSeconds="7")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    door.call("ReceiveMessage", QueueUrl=url)
    assert door.queues.last_wait_ms == 7_000
    door.call("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=0)
    assert door.queues.last_wait_ms == 0


def test_a_client_that_goes_away_ends_its_wait() -> None:
    door = Door()
    door.create("orders")
    headers = {"host": "localhost", "x-amz-target": "AmazonSQS.ReceiveMessage"}
    body = b'{"QueueUrl": "http://localhost/000000000000/orders", "WaitTimeSeconds": 20}'
    later = door.gateway.handle(Request("POST", "/", "", headers, body))
    assert isinstance(later, Later)
    assert not later.promise.done()
    assert later.cancel is not None
    later.cancel()
    assert door.queues.last_receive is not None
    assert door.queues.last_receive.is_cancelled


def test_a_batch_answers_for_each_entry() -> None:
    door = Door()
    url = door.create("orders")
    entries = [
        {"Id": "good", "MessageBody": "x"},
        {"Id": "bad", "MessageBody": "\a"},
        {"Id": "late", "MessageBody": "y", "DelaySeconds": 5000},
    ]
    answer = door.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    assert answer["Successful"][0]["MD5OfMessageBody"] == md5("x")
    assert [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
    ]
    nothing = door.call("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "bad", "MessageBody": "\a"}])
    assert nothing.keys() == {"Failed"}, "an empty list is left out"


def test_a_failure_of_the_node_is_a_failed_entry_and_not_the_senders_fault() -> None:
    door = Door()
    url = door.create("orders")
    door.queues.send_error = DiskFullError("no room")
    answer = door.call("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "x"}])
    assert [(entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]] == [("ServiceUnavailable", False)]
    assert refused(door, "SendMessage", QueueUrl=url, MessageBody="x") == "ServiceUnavailable"


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([str(n) for n in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        (["a b"], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
    ],
)
def test_a_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole(ids: list[str], code: str) -> None:
    door = Door()
    url = door.create("orders")
    for operation, fields in (
        ("SendMessageBatch", {"MessageBody": "x"}),
        ("DeleteMessageBatch", {"ReceiptHandle": "x"}),
        ("ChangeMessageVisibilityBatch", {"ReceiptHandle": "x", "VisibilityTimeout": 5}),
    ):
        entries = [{"Id": id, **fields} for id in ids]
        assert refused(door, operation, QueueUrl=url, Entries=entries) == f"AWS.SimpleQueueService.{code}"


def test_the_limit_of_size_holds_for_the_sum_of_a_batch() -> None:
    door = Door()
    url = door.create("orders")
    entries = [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]
    code = refused(door, "SendMessageBatch", QueueUrl=url, Entries=entries)
    assert code == "AWS.SimpleQueueService.BatchRequestTooLong"


def test_deleting_with_an_old_receipt_is_quiet_on_a_standard_queue_and_an_error_on_fifo() -> None:
    door = Door()
    standard, fifo = door.create("orders"), door.create("orders.fifo", ContentBasedDeduplication="true")
    for url, more in ((standard, {}), (fifo, {"MessageGroupId": "g"})):
        door.call("SendMessage", QueueUrl=url, MessageBody="x", **more)
    old = {url: door.receive_one(url, VisibilityTimeout=1)["ReceiptHandle"] for url in (standard, fifo)}
    door.clock.advance(1_001)
    new = {url: door.receive_one(url)["ReceiptHandle"] for url in (standard, fifo)}
    assert old != new
    assert door.call("DeleteMessage", QueueUrl=standard, ReceiptHandle=old[standard]) == {}
    assert refused(door, "DeleteMessage", QueueUrl=fifo, ReceiptHandle=old[fifo]) == "InvalidParameterValue"
    failed = door.call("DeleteMessageBatch", QueueUrl=fifo, Entries=[{"Id": "a", "ReceiptHandle": old[fifo]}])
    assert failed["Failed"][0]["Code"] == "InvalidParameterValue"
    assert door.call("DeleteMessage", QueueUrl=fifo, ReceiptHandle=new[fifo]) == {}


def test_the_newest_receipt_of_a_standard_queue_deletes_though_its_visibility_is_over() -> None:
    door = Door()
    url, fifo = door.create("orders"), door.create("orders.fifo", ContentBasedDeduplication="true")
    for body in ("x", "y", "z"):
        door.call("SendMessage", QueueUrl=url, MessageBody=body)
    door.call("SendMessage", QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
    first = door.receive_one(url, VisibilityTimeout=0)
    again = door.receive_one(url, VisibilityTimeout=1)
    others = [door.receive_one(url, VisibilityTimeout=1) for _ in range(2)]
    ordered = door.receive_one(fifo, VisibilityTimeout=1)["ReceiptHandle"]
    door.clock.advance(1_001)
    assert door.call("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"]) == {}
    assert door.queues.describe("orders").counts.visible == 3
    assert door.call("DeleteMessage", QueueUrl=url, ReceiptHandle=again["ReceiptHandle"]) == {}
    assert door.queues.describe("orders").counts.visible == 2
    entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(others)]
    assert door.call("DeleteMessageBatch", QueueUrl=url, Entries=entries).keys() == {"Successful"}
    assert door.queues.describe("orders").counts.visible == 0
    assert refused(door, "DeleteMessage", QueueUrl=fifo, ReceiptHandle=ordered) == "InvalidParameterValue"


def test_a_forged_receipt_is_refused() -> None:
    door = Door()
    url = door.create("orders")
    assert refused(door, "DeleteMessage", QueueUrl=url, ReceiptHandle="forged") == "ReceiptHandleIsInvalid"
    change = {"ReceiptHandle": "forged", "VisibilityTimeout": 5}
    assert refused(door, "ChangeMessageVisibility", QueueUrl=url, **change) == "ReceiptHandleIsInvalid"
    batch = door.call("DeleteMessageBatch", QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": "forged"}])
    assert batch["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"


def test_visibility_is_changed_given_back_and_refused_once_the_lease_is_over() -> None:
    door = Door()
    url = door.create("orders", VisibilityTimeout="10")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    receipt = door.receive_one(url)["ReceiptHandle"]
    door.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=60)
    door.clock.advance(30_000)
    assert door.call("ReceiveMessage", QueueUrl=url) == {}
    door.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
    assert door.receive_one(url)["ReceiptHandle"] != receipt
    code = refused(door, "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=5)
    assert code == "AWS.SimpleQueueService.MessageNotInflight"


def test_visibility_is_changed_with_an_expired_receipt_while_nobody_has_the_message() -> None:
    door = Door()
    url, fifo = door.create("orders"), door.create("orders.fifo", ContentBasedDeduplication="true")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    door.call("SendMessage", QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
    older = door.receive_one(url, VisibilityTimeout=0)["ReceiptHandle"]
    expired = door.receive_one(url, VisibilityTimeout=1)["ReceiptHandle"]
    ordered = door.receive_one(fifo, VisibilityTimeout=1)["ReceiptHandle"]
    for receipt in (expired, older):
        door.clock.advance(60_000)
        assert door.call("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=60) == {}
        assert door.call("ReceiveMessage", QueueUrl=url) == {}
    entry = {"Id": "a", "ReceiptHandle": expired, "VisibilityTimeout": 0}
    assert door.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entry]).keys() == {"Successful"}
    newest = door.receive_one(url)["ReceiptHandle"]
    in_flight = {"QueueUrl": url, "VisibilityTimeout": 5}
    for receipt in (expired, older):
        code = refused(door, "ChangeMessageVisibility", **in_flight, ReceiptHandle=receipt)
        assert code == "AWS.SimpleQueueService.MessageNotInflight", "another consumer has it"
    code = refused(door, "ChangeMessageVisibility", QueueUrl=fifo, ReceiptHandle=ordered, VisibilityTimeout=5)
    assert code == "AWS.SimpleQueueService.MessageNotInflight"
    door.call("DeleteMessage", QueueUrl=url, ReceiptHandle=newest)
    for receipt in (newest, expired, older):
        with pytest.raises(Refused, match="Message does not exist or is not available for visibility timeout") as gone:
            door.call("ChangeMessageVisibility", **in_flight, ReceiptHandle=receipt)
        assert gone.value.code == "InvalidParameterValue"
    failed = door.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entry])["Failed"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in failed] == [("a", "InvalidParameterValue", True)]


def test_more_than_twelve_hours_in_total_are_an_error() -> None:
    door = Door()
    url = door.create("orders")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    receipt = door.receive_one(url, VisibilityTimeout=43_200)["ReceiptHandle"]
    door.clock.advance(HOUR_MS)
    change = {"QueueUrl": url, "ReceiptHandle": receipt}
    assert refused(door, "ChangeMessageVisibility", **change, VisibilityTimeout=43_201) == "InvalidParameterValue"
    assert refused(door, "ChangeMessageVisibility", **change, VisibilityTimeout=43_200) == "InvalidParameterValue"
    door.call("ChangeMessageVisibility", **change, VisibilityTimeout=30_000)


def test_a_batch_of_visibilities_may_extend_some_and_give_back_others() -> None:
    door = Door()
    url = door.create("orders")
    for body in "abc":
        door.call("SendMessage", QueueUrl=url, MessageBody=body)
    messages = door.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    entries = [
        {"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": visibility_s}
        for message, visibility_s in zip(messages, (0, 600, 50_000), strict=True)
    ]
    answer = door.call(
        "ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[*entries, {"Id": "d", "ReceiptHandle": "x"}]
    )
    assert [entry["Id"] for entry in answer["Successful"]] == ["a", "b"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("c", "InvalidParameterValue"),
        ("d", "MissingParameter"),
    ]
    assert door.receive_one(url)["Body"] == "a"


# FIFO.


def test_fifo_asks_for_a_group_and_an_id_and_refuses_a_delay() -> None:
    door = Door()
    url = door.create("orders.fifo")
    send = {"QueueUrl": url, "MessageBody": "x"}
    assert refused(door, "SendMessage", **send) == "MissingParameter"
    assert refused(door, "SendMessage", **send, MessageGroupId="g") == "InvalidParameterValue"
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    assert refused(door, "SendMessage", **send, **ids, DelaySeconds=5) == "InvalidParameterValue"
    assert (
        refused(door, "SendMessage", **send, MessageGroupId="g", MessageDeduplicationId="") == "InvalidParameterValue"
    )
    assert door.call("SendMessage", **send, **ids, DelaySeconds=0)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "2"}, "MissingParameter"),
        ({"MessageDeduplicationId": "2", "MessageGroupId": ""}, "MissingParameter"),
        ({"MessageDeduplicationId": "2", "MessageBody": "\a"}, "MissingParameter"),
    ],
)
def test_a_batch_with_an_entry_that_lacks_its_group_or_id_is_refused_whole(given: dict[str, str], code: str) -> None:
    door = Door()
    url = door.create("orders.fifo")
    whole = {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    lacking = {"Id": "b", "MessageBody": "y", **given}
    assert refused(door, "SendMessageBatch", QueueUrl=url, Entries=[whole, lacking]) == code
    if "MessageBody" not in given:
        single = {name: value for name, value in lacking.items() if name != "Id"}
        assert refused(door, "SendMessage", QueueUrl=url, **single) == code, "as for a single message"
    assert not door.queues.shelf("orders.fifo").messages
    # Whatever else is wrong with an entry is told of it alone.
    delayed = {**whole, "Id": "b", "MessageDeduplicationId": "2", "DelaySeconds": 5}
    answer = door.call("SendMessageBatch", QueueUrl=url, Entries=[whole, delayed])
    assert [one["Id"] for one in answer["Successful"]] == ["a"]
    assert [one["Id"] for one in answer["Failed"]] == ["b"]


def test_a_duplicate_gets_the_first_ones_id_and_sequence_number() -> None:
    door = Door()
    url = door.create("orders.fifo")
    send = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    first = door.call("SendMessage", **send, MessageBody="x")
    again = door.call("SendMessage", **send, MessageBody="y")
    assert len(first["SequenceNumber"]) == 20
    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    got = door.receive_one(url, MessageSystemAttributeNames=["All"])
    assert got["Attributes"]["MessageGroupId"] == "g"
    assert got["Attributes"]["MessageDeduplicationId"] == "1"
    assert got["Attributes"]["SequenceNumber"] == first["SequenceNumber"]
    assert door.call("ReceiveMessage", QueueUrl=url) == {}


def test_with_the_scope_of_a_group_two_groups_may_use_one_id() -> None:
    door = Door()
    url = door.create("orders.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    for group in ("g", "h", "g"):
        send = {"MessageBody": "x", "MessageGroupId": group, "MessageDeduplicationId": "1"}
        door.call("SendMessage", QueueUrl=url, **send)
    got = door.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    found = [(one["Attributes"]["MessageGroupId"], one["Attributes"]["MessageDeduplicationId"]) for one in got]
    assert found == [("g", "1"), ("h", "1")]


def test_with_the_scope_of_a_group_ids_do_not_collide_where_groups_and_ids_have_colons() -> None:
    door = Door()
    url = door.create("orders.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    pairs = [("a:b", "c"), ("a", "b:c"), ("1:a", "b:c"), ("a", "c")]
    for group, id in pairs:
        door.call("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=id)
    got = door.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    found = [(one["Attributes"]["MessageGroupId"], one["Attributes"]["MessageDeduplicationId"]) for one in got]
    assert found == pairs


def test_an_id_that_an_earlier_version_joined_to_its_group_is_still_read() -> None:
    door = Door()
    url = door.create("orders.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    door.queues.send("orders.fifo", [Message(b"x", b"g", deduplication_id="g:1")])
    got = door.receive_one(url, AttributeNames=["All"])
    assert got["Attributes"]["MessageDeduplicationId"] == "1"


def test_a_group_is_allowed_on_a_standard_queue() -> None:
    door = Door()
    url = door.create("orders")
    door.call("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="tenant")
    assert door.receive_one(url, AttributeNames=["All"])["Attributes"]["MessageGroupId"] == "tenant"


# What came by another protocol.


def test_bytes_that_are_no_text_come_as_base64_and_say_so() -> None:
    door = Door()
    url = create_direct(door, "orders")
    door.queues.send("orders", [Message(b"\x00\xff"), Message(b"\x00")])
    first, second = door.call(
        "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=2, MessageAttributeNames=["headrace-encoding"]
    )["Messages"]
    assert (first["Body"], second["Body"]) == ("AP8=", "AA==")
    assert first["MD5OfBody"] == md5("AP8=")
    assert first["MessageAttributes"]["headrace-encoding"]["StringValue"] == "base64"


def test_where_messages_are_acknowledged_on_hand_out_clients_may_delete_them_all_the_same() -> None:
    door = Door()
    url = create_direct(door, "orders", QueueConfig(guarantee=Guarantee.AT_MOST_ONCE))
    door.queues.send("orders", [Message(b"x")])
    receipt = door.receive_one(url)["ReceiptHandle"]
    assert door.call("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt) == {}
    assert refused(door, "DeleteMessage", QueueUrl=url, ReceiptHandle="forged") == "ReceiptHandleIsInvalid"


def test_a_dead_letter_names_its_source_and_keeps_its_time() -> None:
    door = Door()
    url = create_direct(door, "dead")
    headers = ((DEAD_SOURCE_HEADER, b"orders"), (DEAD_SENT_HEADER, b"1234"))
    door.queues.send("dead", [Message(b"x", headers=headers)])
    attributes = door.receive_one(url, AttributeNames=["All"])["Attributes"]
    assert attributes["DeadLetterQueueSourceArn"] == "arn:aws:sqs:us-east-1:000000000000:orders"
    assert attributes["SentTimestamp"] == "1234"


def test_a_receive_is_answered_when_what_it_found_dying_is_in_the_dead_letter_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door()
    url = door.create("orders")
    moves: list[tuple[str, Promise[Any]]] = []

    def after_moves(queue: str, promise: Promise[Any]) -> Promise[Any]:
        moves.append((queue, Promise()))
        return moves[-1][1]

    monkeypatch.setattr(door.queues, "after_moves", after_moves)
    headers = {"host": "localhost", "x-amz-target": "AmazonSQS.ReceiveMessage"}
    answer = door.gateway.handle(Request("POST", "/", "", headers, msgspec.json.encode({"QueueUrl": url}), (), "r"))
    assert isinstance(answer, Later)
    [(queue, moved)] = moves
    assert (queue, answer.promise.done()) == ("orders", False)
    moved.keep([])
    assert answer.promise.done()
