"""Whatever a client sends, it gets an answer in SQS's form, and never a failure of the node."""

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateways.sqs.door import HOST, Door

from headrace.gateways.http.message import Request
from headrace.gateways.sqs.queue_attribute import SETTABLE
from headrace.wire.sqs.request import OPERATIONS

URL = f"http://{HOST}/000000000000/orders"
ARN = "arn:aws:sqs:us-east-1:000000000000:orders"
TEXTS = st.one_of(
    st.sampled_from(
        ["", "orders", "orders.fifo", URL, ARN, "a", "0", "-1", "99999999999999999999", "{}", "[]", "null"]
    ),
    st.sampled_from(['{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}', "e30="]),
    st.text(max_size=8),
)
NAMES = st.one_of(st.sampled_from(sorted(SETTABLE)), TEXTS)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, width=32), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=3),
        st.fixed_dictionaries({"Id": TEXTS, "MessageBody": TEXTS, "ReceiptHandle": TEXTS, "VisibilityTimeout": inner}),
        st.fixed_dictionaries({"DataType": TEXTS, "StringValue": TEXTS}),
    ),
    max_leaves=6,
)
# What a field of a type may well be given.
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    str(int): st.integers(-5, 50_000),
    str(int | None): st.integers(-5, 50_000),
    str(list[str]): st.lists(TEXTS, max_size=3),
    str(dict[str, str]): st.dictionaries(NAMES, TEXTS, max_size=3),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An operation with its parameters, some of them right, some of them anything."""
    operation = draw(st.sampled_from(sorted(OPERATIONS)))
    likely: dict[str, Any] = {"QueueUrl": URL, "QueueName": "orders", "SourceArn": ARN}
    parameters = {}
    for field in msgspec.structs.fields(OPERATIONS[operation]):
        name = field.encode_name
        choice = draw(st.integers(0, 3))
        if name in likely and choice:
            parameters[name] = likely[name]
        elif choice == 1:
            parameters[name] = draw(VALUES)
        elif choice > 1:
            parameters[name] = draw(PLAIN.get(str(field.type), TEXTS))
    return operation, parameters


@settings(max_examples=400, deadline=None)
@given(requests())
def test_any_parameters_get_an_answer(drawn: tuple[str, dict[str, Any]]) -> None:
    operation, parameters = drawn
    door = Door()
    asyncio.run(door.queues.create("orders"))
    headers = {"host": HOST, "x-amz-target": f"AmazonSQS.{operation}"}
    # A receive that waits is not answered here; the wait is not what is tested.
    parameters.pop("WaitTimeSeconds", None)
    response = door.answer(Request("POST", "/", "", headers, msgspec.json.encode(parameters), (), "request-1"))
    assert response.status < 500, response.body
    assert isinstance(msgspec.json.decode(response.body), dict)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(OPERATIONS)), st.binary(max_size=30), st.text(max_size=30))
def test_any_bytes_get_an_answer(operation: str, body: bytes, query: str) -> None:
    door = Door()
    for headers in ({"host": HOST, "x-amz-target": f"AmazonSQS.{operation}"}, {"host": HOST}):
        for action in (b"", f"Action={operation}&".encode()):
            response = door.answer(Request("POST", "/", query, headers, action + body, (), "request-1"))
            assert response.status < 500, response.body


@settings(max_examples=200, deadline=None)
@given(requests(), st.lists(st.tuples(st.text(max_size=12), TEXTS), max_size=4))
def test_any_form_gets_an_answer(drawn: tuple[str, dict[str, Any]], more: list[tuple[str, str]]) -> None:
    operation, parameters = drawn
    door = Door()
    asyncio.run(door.queues.create("orders"))
    fields = {"Action": operation, "QueueUrl": URL}
    for name, value in [*parameters.items(), *more]:
        fields[name] = str(value).encode("utf-8", "replace").decode()
    for prefix in ("Attribute.1.Name", "Attribute.1.Value", "Tag.1", "SendMessageBatchRequestEntry.1.Id"):
        if more:
            fields[prefix] = more[0][1].encode("utf-8", "replace").decode()
    fields.pop("WaitTimeSeconds", None)
    assert door.form(fields).status < 500
