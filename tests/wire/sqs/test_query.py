"""The query protocol: forms to requests, answers to XML that an XML parser reads back."""

import re
from urllib.parse import urlencode
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.sqs import answer, codec, query, request
from headrace.wire.sqs.check import is_xml_text
from headrace.wire.sqs.error import QUEUE_DOES_NOT_EXIST, SqsError

NS = f"{{{query.NAMESPACE}}}"
URL = "http://localhost/000000000000/orders"


def decode(fields: dict[str, str], *, queue_url: str | None = None) -> request.SqsRequest:
    return codec.decode_form(query.parse_form(urlencode(fields)), queue_url=queue_url)[1]


def test_lists_and_maps_are_read_by_their_numbers() -> None:
    found = decode(
        {
            "Action": "SendMessageBatch",
            "QueueUrl": URL,
            "SendMessageBatchRequestEntry.2.Id": "b",
            "SendMessageBatchRequestEntry.2.MessageBody": "two & more",
            "SendMessageBatchRequestEntry.1.Id": "a",
            "SendMessageBatchRequestEntry.1.MessageBody": "one",
            "SendMessageBatchRequestEntry.1.DelaySeconds": "5",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Name": "color",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue": "blue",
            "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType": "String",
            "SendMessageBatchRequestEntry.1.MessageAttribute.2.Name": "raw",
            "SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.BinaryValue": "AP8=",
            "SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.DataType": "Binary",
        }
    )
    attributes = {
        "color": request.AttributeValue(string_value="blue", data_type="String"),
        "raw": request.AttributeValue(binary_value=b"\x00\xff", data_type="Binary"),
    }
    assert found == request.SendMessageBatch(
        queue_url=URL,
        entries=[
            request.SendEntry(id="a", message_body="one", delay_seconds=5, message_attributes=attributes),
            request.SendEntry(id="b", message_body="two & more"),
        ],
    )


def test_every_kind_of_list_and_map_is_read() -> None:
    assert decode(
        {
            "Action": "CreateQueue",
            "QueueName": "orders",
            "Attribute.1.Name": "VisibilityTimeout",
            "Attribute.1.Value": "60",
            "Tag.1.Key": "team",
            "Tag.1.Value": "",
        }
    ) == request.CreateQueue(queue_name="orders", attributes={"VisibilityTimeout": "60"}, tags={"team": ""})
    assert decode(
        {"Action": "TagQueue", "QueueUrl": URL, "Tag.1.Key": "team", "Tag.1.Value": "blue"}
    ) == request.TagQueue(queue_url=URL, tags={"team": "blue"})
    assert decode({"Action": "UntagQueue", "QueueUrl": URL, "TagKey.1": "team"}) == request.UntagQueue(
        queue_url=URL, tag_keys=["team"]
    )
    assert decode(
        {"Action": "AddPermission", "Label": "x", "AWSAccountId.1": "1", "ActionName.1": "*", "ActionName.10": "A"},
        queue_url=URL,
    ) == request.AddPermission(queue_url=URL, label="x", account_ids=["1"], actions=["*", "A"])


def test_the_only_member_of_a_list_or_a_map_may_have_no_number() -> None:
    ask = {"Action": "GetQueueAttributes", "QueueUrl": URL, "AttributeName": "All"}
    assert decode(ask) == request.GetQueueAttributes(queue_url=URL, attribute_names=["All"])
    change = {"Action": "SetQueueAttributes", "QueueUrl": URL, "Attribute.Value": "35"}
    assert decode({**change, "Attribute.Name": "VisibilityTimeout"}) == request.SetQueueAttributes(
        queue_url=URL, attributes={"VisibilityTimeout": "35"}
    )
    send = {"Action": "SendMessage", "QueueUrl": URL, "MessageBody": "x", "MessageAttribute.Name": "color"}
    value = {"MessageAttribute.Value.StringValue": "blue", "MessageAttribute.Value.DataType": "String"}
    assert decode({**send, **value}) == request.SendMessage(
        queue_url=URL,
        message_body="x",
        message_attributes={"color": request.AttributeValue(string_value="blue", data_type="String")},
    )


# As an SDK writes it that names the field, one that names its members, and one that sends a member without a value.
def empty_forms(field: str, member: str) -> list[dict[str, str]]:
    return [{field: ""}, {member: ""}, {f"{member}.1": ""}]


@pytest.mark.parametrize(
    ("operation", "field", "member", "attribute"),
    [
        ("GetQueueAttributes", "AttributeNames", "AttributeName", "attribute_names"),
        ("ReceiveMessage", "AttributeNames", "AttributeName", "attribute_names"),
        ("ReceiveMessage", "MessageAttributeNames", "MessageAttributeName", "message_attribute_names"),
        (
            "ReceiveMessage",
            "MessageSystemAttributeNames",
            "MessageSystemAttributeName",
            "message_system_attribute_names",
        ),
        ("UntagQueue", "TagKeys", "TagKey", "tag_keys"),
        ("SendMessageBatch", "Entries", "SendMessageBatchRequestEntry", "entries"),
        ("DeleteMessageBatch", "Entries", "DeleteMessageBatchRequestEntry", "entries"),
        ("ChangeMessageVisibilityBatch", "Entries", "ChangeMessageVisibilityBatchRequestEntry", "entries"),
        ("SetQueueAttributes", "Attributes", "Attribute", "attributes"),
        ("TagQueue", "Tags", "Tag", "tags"),
    ],
)
def test_an_empty_list_or_map_is_served_however_it_is_written(
    operation: str, field: str, member: str, attribute: str
) -> None:
    for form in empty_forms(field, member):
        found = getattr(decode({"Action": operation, **form}, queue_url=URL), attribute)
        assert found == ({} if attribute in ("attributes", "tags") else []), form


def test_empty_lists_and_maps_of_operations_with_several_are_served() -> None:
    new = {"Action": "CreateQueue", "QueueName": "orders"}
    send = {"Action": "SendMessage", "QueueUrl": URL, "MessageBody": "x"}
    for at in range(3):
        empty = empty_forms("Attributes", "Attribute")[at] | empty_forms("Tags", "Tag")[at]
        assert decode({**new, **empty}) == request.CreateQueue(queue_name="orders")
        maps = empty_forms("MessageAttributes", "MessageAttribute")[at]
        maps |= empty_forms("MessageSystemAttributes", "MessageSystemAttribute")[at]
        assert decode({**send, **maps}) == request.SendMessage(
            queue_url=URL, message_body="x", message_attributes={}, message_system_attributes={}
        )


def test_a_member_without_a_value_is_left_out_of_a_list() -> None:
    ask = {"Action": "ReceiveMessage", "AttributeName.1": "", "AttributeName.2": "All", "MessageAttributeName.1": ""}
    assert decode(ask, queue_url=URL) == request.ReceiveMessage(queue_url=URL, attribute_names=["All"])


def test_a_batch_without_entries_is_an_empty_one() -> None:
    for operation in request.BATCHES:
        assert decode({"Action": operation.__name__}, queue_url=URL) == operation(queue_url=URL, entries=[])


def test_the_address_names_the_queue_where_the_form_does_not() -> None:
    assert decode({"Action": "PurgeQueue"}, queue_url=URL) == request.PurgeQueue(queue_url=URL)
    assert decode({"Action": "PurgeQueue", "QueueUrl": "x"}, queue_url=URL) == request.PurgeQueue(queue_url="x")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "MissingAction"),
        ({"Action": "Explode"}, "InvalidAction"),
        ({"Action": "DeleteMessage", "QueueUrl": URL}, "MissingParameter"),
        ({"Action": "ReceiveMessage", "QueueUrl": URL, "MaxNumberOfMessages": "many"}, "MalformedInput"),
        ({"Action": "TagQueue", "QueueUrl": URL, "Tag.x.Key": "a"}, "MalformedInput"),
        ({"Action": "TagQueue", "QueueUrl": URL, "Tag.1": "a"}, "MalformedInput"),
        ({"Action": "TagQueue", "QueueUrl": URL, "Tag": "a", "Tag.1.Key": "b"}, "MalformedInput"),
        ({"Action": "TagQueue", "QueueUrl": URL, "Tag.Key": "a", "Tag.1.Key": "b"}, "MalformedInput"),
        ({"Action": "TagQueue", "QueueUrl": URL, "Tag.Value": "a"}, "MalformedInput"),
        ({"Action": "UntagQueue", "QueueUrl": URL, "TagKey": "a", "TagKey.1": "b"}, "MalformedInput"),
        ({"Action": "SendMessageBatch"}, "MissingParameter"),
        ({"Action": "TagQueue", "QueueUrl": URL, f"Tag.{'1' * 5_000}.Key": "a"}, "MalformedInput"),
        ({"Action": "PurgeQueue", "QueueUrl": URL, ".".join("a" * 5_000): "a"}, "MalformedInput"),
    ],
)
def test_a_form_that_makes_no_request_is_refused(fields: dict[str, str], code: str) -> None:
    with pytest.raises(SqsError) as refused:
        decode(fields)
    assert refused.value.kind.code == code


def test_a_form_that_is_not_utf_8_or_endless_is_refused() -> None:
    for text in ("Action=%ff", "&".join(f"a{n}=1" for n in range(2_000))):
        with pytest.raises(SqsError) as refused:
            query.parse_form(text)
        assert refused.value.kind.code == "MalformedInput"


def test_a_received_message_is_rendered_under_the_names_of_the_protocol() -> None:
    message = answer.ReceivedMessage(
        message_id="id",
        receipt_handle="receipt",
        md5_of_body="md5",
        body="<a>\r\n&</a>",
        attributes={"SenderId": "1", "SentTimestamp": "2"},
        md5_of_message_attributes="md5a",
        message_attributes={"raw": request.AttributeValue(binary_value=b"\x00\xff", data_type="Binary")},
    )
    rendered = query.render("ReceiveMessage", answer.ReceivedMessages(messages=[message, message]), "request-1")
    root = ElementTree.fromstring(rendered)
    assert root.tag == f"{NS}ReceiveMessageResponse"
    assert root.findtext(f"{NS}ResponseMetadata/{NS}RequestId") == "request-1"
    first, second = root.findall(f"{NS}ReceiveMessageResult/{NS}Message")
    assert ElementTree.tostring(first) == ElementTree.tostring(second)
    assert first.findtext(f"{NS}Body") == "<a>\r\n&</a>"
    assert [(a.findtext(f"{NS}Name"), a.findtext(f"{NS}Value")) for a in first.findall(f"{NS}Attribute")] == [
        ("SenderId", "1"),
        ("SentTimestamp", "2"),
    ]
    assert first.findtext(f"{NS}MessageAttribute/{NS}Value/{NS}BinaryValue") == "AP8="


def test_a_batch_and_an_empty_answer_are_rendered() -> None:
    failed = answer.FailedEntry(id="b", sender_fault=True, code="X", message="y")
    batch = answer.Batch(successful=[answer.DoneEntry(id="a")], failed=[failed])
    root = ElementTree.fromstring(query.render("DeleteMessageBatch", batch, "r"))
    assert root.findtext(f"{NS}DeleteMessageBatchResult/{NS}DeleteMessageBatchResultEntry/{NS}Id") == "a"
    assert root.findtext(f"{NS}DeleteMessageBatchResult/{NS}BatchResultErrorEntry/{NS}SenderFault") == "true"
    empty = ElementTree.fromstring(query.render("DeleteMessage", answer.NOTHING, "r"))
    assert [child.tag for child in empty] == [f"{NS}ResponseMetadata"]


@given(st.text(st.characters(codec="utf-8")).filter(lambda text: is_xml_text(text.encode())))
def test_every_text_that_is_allowed_survives_xml(text: str) -> None:
    root = ElementTree.fromstring(query.render("GetQueueUrl", answer.QueueUrl(queue_url=text), "r"))
    assert (root.findtext(f"{NS}GetQueueUrlResult/{NS}QueueUrl") or "") == text


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_makes_an_answer_that_a_parser_reads(text: str) -> None:
    said = text.replace("\r", "") or "nothing"
    shown = "".join(c if is_xml_text(c.encode()) else "\ufffd" for c in said)
    tags = ElementTree.fromstring(query.render("ListQueueTags", answer.QueueTags(tags={"a": said}), "r"))
    assert tags.findtext(f"{NS}ListQueueTagsResult/{NS}Tag/{NS}Value") == shown
    error = ElementTree.fromstring(query.render_error(SqsError(QUEUE_DOES_NOT_EXIST, said), "r"))
    assert error.findtext(f"{NS}Error/{NS}Message") == shown


def test_errors_have_their_codes_in_both_protocols() -> None:
    error = SqsError(QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")
    body, headers = codec.JSON.error(error, "r")
    assert msgspec.json.decode(body)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert headers == (("x-amzn-query-error", "AWS.SimpleQueueService.NonExistentQueue;Sender"),)
    root = ElementTree.fromstring(codec.QUERY.error(error, "r")[0])
    assert root.findtext(f"{NS}Error/{NS}Code") == "AWS.SimpleQueueService.NonExistentQueue"
    assert root.findtext(f"{NS}RequestId") == "r"


@pytest.mark.parametrize(
    ("operation", "body", "code"),
    [
        ("Explode", b"{}", "InvalidAction"),
        ("SendMessage", b"{", "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "\xff"}', "MalformedInput"),
        ("SendMessage", b"{}", "MissingParameter"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": {}}', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": []}', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": "x", "DelaySeconds": "soon"}', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": "x", "DelaySeconds": 1.5}', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": "x", "DelaySeconds": true}', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "MessageBody": "x", "MessageAttributes": []}', "MalformedInput"),
        ("SendMessageBatch", b'{"QueueUrl": "u", "Entries": "x"}', "MalformedInput"),
        ("SendMessage", b"[]", "MalformedInput"),
        ("SendMessage", b'"x"', "MalformedInput"),
        ("SendMessage", b'{"MessageBody": 5, ', "MalformedInput"),
        ("SendMessage", b'{"QueueUrl": "u", "x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "MalformedInput"),
    ],
)
def test_a_json_body_that_makes_no_request_is_refused(operation: str, body: bytes, code: str) -> None:
    with pytest.raises(SqsError) as refused:
        codec.decode_json(operation, body)
    assert refused.value.kind.code == code


def test_numbers_and_booleans_are_taken_for_their_text_as_javascript_sends_them() -> None:
    body = b'{"QueueName": 7, "Attributes": {"DelaySeconds": 400, "FifoQueue": true}, "tags": {"n": 1.5, "none": null}}'
    assert codec.decode_json("CreateQueue", body) == request.CreateQueue(
        queue_name="7", attributes={"DelaySeconds": "400", "FifoQueue": "true"}, tags={"n": "1.5"}
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"QueueUrl": "u", "MessageBody": {}}',
        b'{"QueueUrl": "u", "MessageBody": "x", "DelaySeconds": "soon"}',
        b'{"QueueUrl": "u", "MessageBody": "x", "MessageAttributes": {"a": {"BinaryValue": "!"}}}',
        b"[]",
        b"{",
    ],
)
def test_a_refusal_does_not_show_how_requests_are_decoded(body: bytes) -> None:
    with pytest.raises(SqsError) as refused:
        codec.decode_json("SendMessage", body)
    assert not set("`$|") & set(refused.value.message)


def test_an_operation_without_parameters_needs_no_body() -> None:
    assert codec.decode_json("ListQueues", b"") == request.ListQueues()


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_no_character_of_xml_is_known(text: str) -> None:
    allowed = re.fullmatch("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*", text)
    assert is_xml_text(text.encode()) == (allowed is not None)


@pytest.mark.parametrize("code", [0, 8, 9, 10, 11, 12, 13, 14, 31, 32, 127, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFE])
def test_the_borders_of_what_xml_calls_a_character(code: int) -> None:
    assert is_xml_text(f"a{chr(code)}b".encode()) == (
        code in (9, 10, 13, 0xFFFD) or 32 <= code < 0xFFFE or code > 0xFFFF
    )
