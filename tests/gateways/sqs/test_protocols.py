"""Both protocols reach the same operations; the older one by its address, by GET, and with its own errors."""

from xml.etree import ElementTree

import pytest
from tests.gateways.sqs.door import HOST, Door, Refused

from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Router
from headrace.security.secret import Secret
from headrace.wire.sqs.query import NAMESPACE
from headrace.wire.sqs.request import OPERATIONS

NS = f"{{{NAMESPACE}}}"


def xml(response: Response, status: int = 200) -> ElementTree.Element:
    assert response.status == status, response.body
    assert response.content_type == "text/xml"
    assert response.id_header == "x-amzn-RequestId"
    return ElementTree.fromstring(response.body)


def test_a_conversation_in_the_query_protocol() -> None:
    door = Door()
    created = xml(door.form({"Action": "CreateQueue", "QueueName": "orders", "Version": "2012-11-05"}))
    url = created.findtext(f"{NS}CreateQueueResult/{NS}QueueUrl")
    assert url == f"http://{HOST}/000000000000/orders"
    sent = xml(door.form({"Action": "SendMessage", "MessageBody": "a < b"}, queue="orders"))
    got = xml(door.form({"Action": "ReceiveMessage", "AttributeName.1": "All"}, queue="orders", method="GET"))
    message = got.find(f"{NS}ReceiveMessageResult/{NS}Message")
    assert message is not None
    assert message.findtext(f"{NS}Body") == "a < b"
    assert message.findtext(f"{NS}MessageId") == sent.findtext(f"{NS}SendMessageResult/{NS}MessageId")
    receipt = message.findtext(f"{NS}ReceiptHandle") or ""
    deleted = xml(door.form({"Action": "DeleteMessage", "QueueUrl": url, "ReceiptHandle": receipt}))
    assert deleted.findtext(f"{NS}ResponseMetadata/{NS}RequestId") == "request-1"
    assert door.queues.shelves["orders"].messages == {}


def test_errors_of_the_query_protocol_have_its_codes() -> None:
    door = Door()
    for fields, status, code in (
        ({"Action": "GetQueueUrl", "QueueName": "absent"}, 400, "AWS.SimpleQueueService.NonExistentQueue"),
        ({"Action": "Explode"}, 400, "InvalidAction"),
        ({}, 400, "MissingParameter"),
    ):
        root = xml(door.form(fields), status)
        assert root.findtext(f"{NS}Error/{NS}Code") == code
        assert root.findtext(f"{NS}Error/{NS}Type") == "Sender"


def test_bodies_that_are_nothing_are_refused_in_the_protocol_they_came_by() -> None:
    door = Door()
    garbage = door.answer(Request("POST", "/", "", {"host": HOST}, b"\xff\xfe", (), "request-1"))
    assert xml(garbage, 400).findtext(f"{NS}Error/{NS}Code") == "MalformedInput"
    with pytest.raises(Refused) as refusal:
        door.call("Explode")
    assert (refusal.value.type, refusal.value.code) == ("UnknownOperationException", "InvalidAction")


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"ListQueues"}))
def test_every_operation_is_served_and_says_what_it_needs(operation: str) -> None:
    with pytest.raises(Refused, match="must contain the parameter") as refusal:
        Door().call(operation)
    assert refusal.value.code == "MissingParameter"


@pytest.mark.parametrize("operation", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_a_form_for_a_batch_without_entries_is_refused_as_an_empty_batch(operation: str) -> None:
    door = Door()
    door.create("orders")
    error = xml(door.form({"Action": operation}, queue="orders"), 400)
    assert error.findtext(f"{NS}Error/{NS}Code") == "AWS.SimpleQueueService.EmptyBatchRequest"


def test_a_field_that_is_null_is_one_that_is_not_given() -> None:
    door = Door()
    url = door.call("CreateQueue", QueueName="orders", Attributes=None, tags=None)["QueueUrl"]
    assert door.call("ListQueues", QueueNamePrefix=None, MaxResults=None) == {"QueueUrls": [url]}
    color = {"StringValue": "blue", "BinaryValue": None, "StringListValues": None, "DataType": "String"}
    more = {"DelaySeconds": None, "MessageAttributes": {"color": color}, "MessageSystemAttributes": None}
    door.call("SendMessage", QueueUrl=url, MessageBody="x", **more)
    raw = {"StringValue": None, "BinaryValue": "AP8=", "BinaryListValues": None, "DataType": "Binary"}
    entry = {"Id": "a", "MessageBody": "y", "MessageAttributes": {"raw": raw}}
    assert door.call("SendMessageBatch", QueueUrl=url, Entries=[entry])["Failed"] == []
    names = {"AttributeNames": None, "MessageSystemAttributeNames": None, "MessageAttributeNames": ["All"]}
    first, second = door.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, **names)["Messages"]
    assert (first["Body"], first["MessageAttributes"]["color"]["StringValue"]) == ("x", "blue")
    assert second["MessageAttributes"]["raw"]["BinaryValue"] == "AP8="
    assert door.call("GetQueueAttributes", QueueUrl=url, AttributeNames=None) == {}
    with pytest.raises(Refused) as refusal:
        door.call("SendMessage", QueueUrl=url, MessageBody=None)
    assert refusal.value.code == "MissingParameter"
    with pytest.raises(Refused) as refusal:
        door.call("ReceiveMessage", QueueUrl=url, AttributeNames=[None])
    assert refusal.value.code == "InvalidParameterValue"


def test_nulls_that_are_nested_as_no_request_is_are_refused() -> None:
    door = Door()
    headers = {"host": "localhost", "x-amz-target": "AmazonSQS.CreateQueue"}
    body = b'{"QueueName": null, "Attributes": ' + b"[" * 100_000 + b"null" + b"]" * 100_000 + b"}"
    response = door.answer(Request("POST", "/", "", headers, body, (), "request-1"))
    assert response.status == 400


def test_the_routes_are_a_ports_root_and_the_addresses_of_queues() -> None:
    router = Router(Door().gateway.routes())
    assert router.find("POST", "/").routes
    assert router.find("POST", "/000000000000/orders.fifo").values == ("000000000000", "orders.fifo")
    for method in ("GET", "POST"):
        found = router.find(method, "/000000000000/orders/")
        assert (len(found.routes), found.values) == (1, ("000000000000", "orders"))
    [get] = router.find("GET", "/").routes
    assert get.when is not None
    assert get.when(Request("GET", "/", "Action=ListQueues", {}, b""))
    assert not get.when(Request("GET", "/", "", {}, b""))


def test_where_keys_are_configured_an_unsigned_request_is_refused() -> None:
    door = Door(keys={"AKID": Secret("secret")})
    with pytest.raises(Refused) as refusal:
        door.call("ListQueues")
    assert (refusal.value.code, refusal.value.status) == ("MissingAuthenticationToken", 403)
    root = xml(door.form({"Action": "ListQueues"}), 403)
    assert root.findtext(f"{NS}Error/{NS}Code") == "MissingAuthenticationToken"
