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
        ({}, 400, "MissingAction"),
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
    is_named = operation in ("CreateQueue", "GetQueueUrl")  # for which SQS has another sentence
    is_untagged = operation == "UntagQueue"
    words = "Must specify a queue name|Tag keys must be" if is_named or is_untagged else "must contain the parameter"
    with pytest.raises(Refused, match=words) as no:
        Door().call(operation, **({"QueueUrl": "x"} if is_untagged else {}))
    assert no.value.code == ("InvalidParameterValue" if is_named or is_untagged else "MissingParameter")


@pytest.mark.parametrize("operation", ["CreateQueue", "ListQueues"])
def test_the_address_of_a_queue_serves_what_is_about_a_queue(operation: str) -> None:
    door = Door()
    door.create("orders")
    error = xml(door.form({"Action": operation, "QueueName": "other"}, queue="orders"), 400)
    assert error.findtext(f"{NS}Error/{NS}Code") == "InvalidAction"
    said = f"The action {operation} is not valid for this endpoint."
    assert error.findtext(f"{NS}Error/{NS}Message") == said
    assert set(door.queues.shelves) == {"orders"}


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("AmazonSQS.listqueues", b"{}", "InvalidAction"),
        ("DynamoDB.ListQueues", b"{}", "InvalidAction"),
        ("AmazonSQS.", b"{}", "InvalidAction"),
        ("", b"{}", "InvalidAction"),
        ("AmazonSQS.ListQueues", b"Action=ListQueues", "MalformedInput"),
        ("AmazonSQS.ListQueues", b"\xef\xbb\xbf{}", "MalformedInput"),
        ("AmazonSQS.ListQueues", b"{} {}", "MalformedInput"),
        ("AmazonSQS.ListQueues", b"[]", "MalformedInput"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"\\ud800"}', "MalformedInput"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"x","DelaySeconds":NaN}', "MalformedInput"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"x","DelaySeconds":1e400}', "MalformedInput"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"\\u0000"}', "InvalidMessageContents"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"\\ufffe"}', "InvalidMessageContents"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl":"orders","MessageBody":"\\ud83d\\ude00\\u0085"}', None),
        ("AmazonSQS.PurgeQueue", b'{"QueueUrl":"/"}', "InvalidAddress"),
        ("AmazonSQS.PurgeQueue", b'{"QueueUrl":"http://elsewhere/000000000000/"}', "InvalidAddress"),
        ("AmazonSQS.PurgeQueue", b'{"QueueUrl":"\xc3\xa9"}', "AWS.SimpleQueueService.NonExistentQueue"),
        (None, b"", "MissingAction"),
        (None, b"Action=", "MissingAction"),
        (None, b'{"QueueName":"x"}', "MissingAction"),
        (None, b"Action=SendMessage;MessageBody=x", "InvalidAction"),
        (None, b"Action=SendMessage&QueueUrl=orders&MessageBody=%ff", "MalformedInput"),
        (None, b"Action=SendMessage&QueueUrl=orders&MessageBody=%ED%A0%80", "MalformedInput"),
        (None, b"Action=SendMessage&QueueUrl=orders&MessageBody=%01", "InvalidMessageContents"),
        (None, b"Action=SendMessageBatch&QueueUrl=orders&Entries=x", "MalformedInput"),
        (None, b"Action=SetQueueAttributes&QueueUrl=orders&Attribute.1.Value=5", "MalformedInput"),
        (None, b"Action=SetQueueAttributes&QueueUrl=orders&Attribute.1.Name=DelaySeconds", "InvalidAttributeValue"),
        (None, b"Action=ListQueues&Version=1999-01-01&Foo.Bar.1=2", None),
        # A target is JSON's, whatever a form beside it says.
        ("AmazonSQS.ListQueues", b"{}", None),
    ],
)
def test_odd_requests_are_answered_in_the_protocol_that_they_came_by(
    target: str | None, body: bytes, code: str | None
) -> None:
    door = Door()
    door.create("orders")
    headers = {"host": HOST, "content-type": "text/plain", **({} if target is None else {"x-amz-target": target})}
    query = "" if target is None else "Action=DeleteQueue&QueueUrl=orders"
    response = door.answer(Request("POST", "/", query, headers, body, (), "request-1"))
    assert response.status == (200 if code is None else 400)
    if target is None:
        assert xml(response, response.status).findtext(f"{NS}Error/{NS}Code") == code
    else:
        assert response.content_type == "application/x-amz-json-1.0"
        found = dict(response.headers).get("x-amzn-query-error")
        assert found == (None if code is None else f"{code};Sender")
    assert "orders" in door.queues.shelves


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
    assert door.call("SendMessageBatch", QueueUrl=url, Entries=[entry]).keys() == {"Successful"}
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
    assert refusal.value.code == "MalformedInput"


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


def test_a_browser_that_comes_from_another_site_gets_an_answer_only_where_requests_are_signed() -> None:
    keys = {"AKID": Secret("secret")}
    for signed, routes in ((False, Door().gateway.routes()), (True, Door(keys=keys).gateway.routes())):
        assert {route.is_signed for route in routes} == {signed}
        assert not any(route.only_looks(route.method) for route in routes)


def test_where_keys_are_configured_an_unsigned_request_is_refused() -> None:
    door = Door(keys={"AKID": Secret("secret")})
    with pytest.raises(Refused) as refusal:
        door.call("ListQueues")
    assert (refusal.value.code, refusal.value.status) == ("MissingAuthenticationToken", 403)
    root = xml(door.form({"Action": "ListQueues"}), 403)
    assert root.findtext(f"{NS}Error/{NS}Code") == "MissingAuthenticationToken"
