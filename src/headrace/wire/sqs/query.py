"""The older query protocol: forms in, XML out.

A form names the parts of lists and maps by number, `Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=60`; where
there is but one, the number may be left out, as in examples of AWS's own. The form is read to the tree that its dots
describe, and the tree to the same names that the JSON protocol has. An answer goes the other way: lists and maps are
repeated elements under the names of their members.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from headrace.wire.sqs.answer import Answer, SqsAnswer
from headrace.wire.sqs.error import MALFORMED, NO_QUEUE, SqsError

CONTENT_TYPE = "text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

Tree = dict[str, Any]  # names to texts or to trees

# A batch of ten messages with ten attributes each has some 430 fields.
_FIELDS_MAX = 1_000
# The longest name of a field has six parts: SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue.
_DEPTH_MAX = 10
_DIGITS_MAX = 9

# Members of lists in a form, and the field of the request that they make up.
_LISTS = {
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "AttributeName": "AttributeNames",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "TagKey": "TagKeys",
}
# The same of maps, with what their members call key and value.
_MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}
# A form writes an empty list or map as its name without a value. Of SDKs, some give the name of the field and others
# that of its members.
_EMPTY: dict[str, tuple[str, type[list[Any]] | type[Tree]]] = {
    **{name: (field, list) for member, field in _LISTS.items() for name in (member, field)},
    **{name: (map[0], dict) for member, map in _MAPS.items() for name in (member, map[0])},
}
# Fields of answers that are repeated elements.
_LIST_ELEMENTS = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "queueUrls": "QueueUrl",
}
_MAP_ELEMENTS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
# An XML parser reads a bare carriage return as a line feed, and the body's MD5 would be another.
_ESCAPES = {"\r": "&#13;"}
# What XML cannot say, not even escaped. Bodies have none of it; a key that came by another door may, and a message
# that no parser can read could never be received.
_UNSAYABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\ufffd"
# This protocol has a sentence of its own for a queue that is not there.
_NO_QUEUE = "The specified queue does not exist for this wsdl version."


def parse_form(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise SqsError(MALFORMED, "The form is not URL-encoded UTF-8, or has too many fields.") from error
    return dict(pairs)


def to_request(operation: str, form: Mapping[str, str]) -> Tree:
    """A form's fields under the names of the JSON protocol. Numbers are still text."""
    tree: Tree = {}
    for name, value in form.items():
        if name in ("Action", "Version"):
            continue
        *path, leaf = name.split(".")
        if len(path) > _DEPTH_MAX:
            raise SqsError(MALFORMED, f"The field {name[:100]} has too many parts.")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SqsError(MALFORMED, f"The field {name} contradicts another one of the form.")
            place = inner
        if isinstance(place.get(leaf), dict):
            raise SqsError(MALFORMED, f"The field {name} contradicts another one of the form.")
        place[leaf] = value
    request = _named(tree)
    if operation == "CreateQueue" and "Tags" in request:
        request["tags"] = request.pop("Tags")
    return request


def _named(tree: Tree) -> Tree:
    named: Tree = {}
    for name, value in tree.items():
        if not isinstance(value, dict):
            if not value and name in _EMPTY:
                field, kind = _EMPTY[name]
                named[field] = kind()
            elif name in _LISTS:
                named[_LISTS[name]] = [value]
            else:
                named[name] = value
        elif name in _LISTS:
            named[_LISTS[name]] = [_named(item) if isinstance(item, dict) else item for item in _in_order(name, value)]
        elif name in _MAPS:
            field, key, content = _MAPS[name]
            items = [value] if value.keys() <= {key, content} else _in_order(name, value)
            named[field] = dict(_pair(name, item, key, content) for item in items)
        else:
            named[name] = _named(value)
    return named


def _in_order(name: str, numbered: Tree) -> list[Any]:
    if not all(number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX for number in numbered):
        raise SqsError(MALFORMED, f"The members of {name} are numbered: {name}.1, {name}.2 and so on.")
    # A member that has no value is an empty list's only one.
    return [item for number in sorted(numbered, key=int) if (item := numbered[number]) != ""]


def _pair(name: str, item: Any, key: str, content: str) -> tuple[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get(key), str):
        raise SqsError(MALFORMED, f"A member of {name} has a {key} and a {content}.")
    value = item.get(content, "")
    return item[key], _named(value) if isinstance(value, dict) else value


def render(operation: str, answer: Answer, request_id: str) -> bytes:
    parts = [f'<?xml version="1.0"?><{operation}Response xmlns="{NAMESPACE}">']
    if type(answer) is not SqsAnswer:
        parts += f"<{operation}Result>", *_elements(operation, msgspec.to_builtins(answer)), f"</{operation}Result>"
    parts.append(
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{operation}Response>",
    )
    return "".join(parts).encode()


def _elements(operation: str, fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, list):
            element = f"{operation}ResultEntry" if name == "Successful" else _LIST_ELEMENTS[name]
            for item in value:
                yield from _element(operation, element, item)
        elif isinstance(value, dict) and name in _MAP_ELEMENTS:
            element, key, content = _MAP_ELEMENTS[name]
            for inner_key, inner in value.items():
                yield from _element(operation, element, {key: inner_key, content: inner})
        else:
            yield from _element(operation, name, value)


def _element(operation: str, name: str, value: Any) -> Iterator[str]:
    yield f"<{name}>"
    if isinstance(value, dict):
        yield from _elements(operation, value)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    else:
        yield _text(str(value))
    yield f"</{name}>"


def _text(value: str) -> str:
    return escape(_UNSAYABLE.sub(_REPLACEMENT, value), _ESCAPES)


def render_error(error: SqsError, request_id: str) -> bytes:
    kind = error.kind
    message = error.message.replace(NO_QUEUE, _NO_QUEUE, 1)
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{kind.fault}</Type>'
        f"<Code>{kind.code}</Code><Message>{_text(message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()
