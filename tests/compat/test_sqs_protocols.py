"""The older query protocol, presigned addresses and signatures, against real nodes."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import botocore.session
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.compat.sqs import TestQueue, connect, queue_name, refused
from tests.support.node import NodeProcess, running

NS = "{http://queue.amazonaws.com/doc/2012-11-05/}"
KEY, SECRET = "AKIDEXAMPLE", "a-secret-of-the-tests"


def post(url: str, fields: dict[str, str]) -> tuple[int, ElementTree.Element]:
    """A form, as SDKs sent them before they spoke JSON."""
    request = urllib.request.Request(url, data=urlencode(fields).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, ElementTree.fromstring(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ElementTree.fromstring(error.read())


def test_a_queue_is_worked_by_forms_at_its_own_address(node: NodeProcess, request: pytest.FixtureRequest) -> None:
    name = queue_name(request.node.name)
    status, created = post(
        f"http://{node.http}/",
        {
            "Action": "CreateQueue",
            "QueueName": name,
            "Attribute.1.Name": "VisibilityTimeout",
            "Attribute.1.Value": "60",
        },
    )
    assert status == 200
    url = created.findtext(f"{NS}CreateQueueResult/{NS}QueueUrl") or ""
    assert url == f"http://{node.http}/000000000000/{name}"
    attribute = {
        "MessageAttribute.1.Name": "color",
        "MessageAttribute.1.Value.StringValue": "blue",
        "MessageAttribute.1.Value.DataType": "String",
    }
    _, sent = post(url, {"Action": "SendMessage", "MessageBody": "größe & more", **attribute})
    _, got = post(
        url,
        {"Action": "ReceiveMessage", "AttributeName.1": "All", "MessageAttributeName.1": "All", "WaitTimeSeconds": "5"},
    )
    message = got.find(f"{NS}ReceiveMessageResult/{NS}Message")
    assert message is not None
    assert message.findtext(f"{NS}Body") == "größe & more"
    assert message.findtext(f"{NS}MessageAttribute/{NS}Value/{NS}StringValue") == "blue"
    for ours, theirs in (("MessageId", "MessageId"), ("MD5OfMessageAttributes", "MD5OfMessageAttributes")):
        assert message.findtext(f"{NS}{ours}") == sent.findtext(f"{NS}SendMessageResult/{NS}{theirs}")
    entry = "DeleteMessageBatchRequestEntry.1"
    receipt = message.findtext(f"{NS}ReceiptHandle") or ""
    _, gone = post(url, {"Action": "DeleteMessageBatch", f"{entry}.Id": "a", f"{entry}.ReceiptHandle": receipt})
    assert gone.findtext(f"{NS}DeleteMessageBatchResult/{NS}DeleteMessageBatchResultEntry/{NS}Id") == "a"
    status, refusal = post(url.replace(name, "absent"), {"Action": "ReceiveMessage"})
    assert status == 400
    assert refusal.findtext(f"{NS}Error/{NS}Code") == "AWS.SimpleQueueService.NonExistentQueue"


def test_the_address_of_a_queue_may_end_with_a_slash(node: NodeProcess, request: pytest.FixtureRequest) -> None:
    queue = TestQueue(connect(node), queue_name(request.node.name), VisibilityTimeout="35")
    query = urlencode({"Action": "GetQueueAttributes", "AttributeName": "All"})
    for address, body in ((f"{queue.url}/?{query}", None), (f"{queue.url}/", query.encode())):
        with urllib.request.urlopen(address, body, timeout=30) as answer:
            assert b"<Name>VisibilityTimeout</Name><Value>35</Value>" in answer.read()


def test_a_message_in_xml_has_every_member_of_the_service_model(
    node: NodeProcess, request: pytest.FixtureRequest
) -> None:
    queue = TestQueue(connect(node), queue_name(request.node.name))
    queue.send("one", MessageAttributes={"n": {"StringValue": "1", "DataType": "Number"}})
    fields = {"Action": "ReceiveMessage", "AttributeName.1": "All", "MessageAttributeName.1": "n"}
    _, answer = post(queue.url, fields)
    names = {child.tag.removeprefix(NS) for child in answer.iter()}
    shape: Any = botocore.session.get_session().get_service_model("sqs").shape_for("Message")
    flattened = {"Attributes": "Attribute", "MessageAttributes": "MessageAttribute"}
    assert {flattened.get(member, member) for member in shape.members} <= names


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that asks for keys."""
    directory = tmp_path_factory.mktemp("guarded")
    keys = directory / "keys.toml"
    keys.write_text(f'{KEY} = "{SECRET}"\n')
    with running(directory / "data", settings={"sqs.keys_file": keys}) as started:
        yield started


def test_signed_requests_are_served_and_others_refused(guarded: NodeProcess) -> None:
    good = connect(guarded, key=KEY, secret=SECRET)
    queue = TestQueue(good, "guarded")
    queue.send("x")
    assert queue.receive_one()["Body"] == "x"
    assert refused(connect(guarded, key=KEY, secret="wrong").list_queues) == "SignatureDoesNotMatch"
    assert refused(connect(guarded, key="AKIDOTHER", secret=SECRET).list_queues) == "InvalidClientTokenId"
    elsewhere = connect(guarded, key=KEY, secret=SECRET, region="eu-west-1")
    assert refused(elsewhere.list_queues) == "SignatureDoesNotMatch"
    status, answer = post(f"http://{guarded.http}/", {"Action": "ListQueues"})
    assert status == 403
    assert answer.findtext(f"{NS}Error/{NS}Code") == "MissingAuthenticationToken"


def test_a_presigned_address_and_a_signed_form_are_served(guarded: NodeProcess) -> None:
    TestQueue(connect(guarded, key=KEY, secret=SECRET), "presigned")
    credentials = Credentials(KEY, SECRET)
    url = f"http://{guarded.http}/000000000000/presigned"
    presigned = AWSRequest(method="GET", url=url, params={"Action": "SendMessage", "MessageBody": "by address & name"})
    SigV4QueryAuth(credentials, "sqs", "us-east-1", expires=60).add_auth(presigned)
    with urllib.request.urlopen(presigned.prepare().url, timeout=30) as answer:
        assert answer.status == 200
    body = urlencode({"Action": "ReceiveMessage"}).encode()
    form = AWSRequest(method="POST", url=url, data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    SigV4Auth(credentials, "sqs", "us-east-1").add_auth(form)
    signed = urllib.request.Request(url, data=body, headers=dict(form.headers.items()))
    with urllib.request.urlopen(signed, timeout=30) as answer:
        root = ElementTree.fromstring(answer.read())
    assert root.findtext(f"{NS}ReceiveMessageResult/{NS}Message/{NS}Body") == "by address & name"


def test_secrets_are_in_no_log_and_no_answer(guarded: NodeProcess) -> None:
    connect(guarded, key=KEY, secret=SECRET).list_queues()
    refused(connect(guarded, key=KEY, secret="wrong").list_queues)
    assert SECRET not in guarded.log_text()


def test_a_node_does_not_start_with_keys_that_cannot_be_read(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", settings={"sqs.keys_file": tmp_path / "absent.toml"})
    try:
        node.launch()
        assert node.wait_exit() != 0
        assert "absent.toml" in node.log_text()
    finally:
        node.clean_up()


def test_attributes_tags_ids_and_counts_of_receives_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "data") as started:
        queue = TestQueue(connect(started), "orders", VisibilityTimeout="0", MaximumMessageSize="2048")
        queue.client.tag_queue(QueueUrl=queue.url, Tags={"team": "blue"})
        sent = queue.send("x")
        queue.receive_one()
        assert started.stop() == 0
        started.start()
        again = TestQueue(connect(started), "orders", VisibilityTimeout="0")
        assert again.attribute("MaximumMessageSize") == "2048"
        assert again.client.list_queue_tags(QueueUrl=again.url)["Tags"] == {"team": "blue"}
        got = again.receive_one()
        assert got["MessageId"] == sent["MessageId"]
        assert got["Attributes"]["ApproximateReceiveCount"] == "2"


def test_every_json_error_has_the_header_that_sdks_look_for(node: NodeProcess) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.GetQueueUrl", "Content-Type": "application/x-amz-json-1.0"}
    for body, code in (
        (b'{"QueueName": "absent"}', "AWS.SimpleQueueService.NonExistentQueue"),
        (b"{", "MalformedInput"),
    ):
        request = urllib.request.Request(f"http://{node.http}/", data=body, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=30)
        with refusal.value as error:
            assert error.headers["x-amzn-query-error"] == f"{code};Sender"
            assert error.headers["x-amzn-RequestId"]
            assert json.loads(error.read())["__type"]
