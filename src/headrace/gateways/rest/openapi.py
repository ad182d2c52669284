"""The API's description, in OpenAPI 3.1: operations from one table, shapes from the structs that requests become.

Everything that a client may send is described as strictly as it is checked, so that a generator which follows the
description is never surprised by a refusal, and one that does not always is.

Bytes have no type in JSON Schema. Where MessagePack has them they are described as OpenAPI's strings of format binary,
which generators know, with the media type that says the same in the words of JSON Schema.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.gateways.rest import form, queue_form
from headrace.gateways.rest.config_form import ABOUT_SETTINGS
from headrace.gateways.rest.operation import TAGS, Operation, Shapes, operations
from headrace.model.names import NAME_LENGTH_MAX

OPENAPI = "3.1.0"
NAME_PATTERN = rf"^(?!\.{{1,2}}$)[A-Za-z0-9._\-]{{1,{NAME_LENGTH_MAX}}}$"
BASE64_PATTERN = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_REFERENCE = "#/components/schemas/{name}"
_JSON, _MSGPACK, _PROBLEM = "application/json", "application/msgpack", "application/problem+json"
_BYTES = "application/octet-stream"
_BINARY = {"type": "string", "format": "binary", "contentMediaType": _BYTES}
# Shapes of which MessagePack has bytes where JSON has text.
_PACKED = (form.PackedMessage, form.PackedReceived, queue_form.PackedBrowsed)


_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "queue": {"type": "string", "pattern": NAME_PATTERN},
    "receipt_handle": {"type": "string", "minLength": 1, "maxLength": form.TEXT_LENGTH_MAX},
    "id": {"type": "string", "minLength": 1, "maxLength": 64},
    "transaction": {"type": "string", "minLength": 1, "maxLength": form.TEXT_LENGTH_MAX},
    "name": {"type": "string", "pattern": r"^[A-Za-z0-9._\-]{1,100}$"},
}


def describe_api(*, version: str, wait_seconds_max: float) -> dict[str, Any]:
    """The whole description, ready to be encoded as JSON."""
    table = operations(wait_seconds_max=wait_seconds_max)
    shapes = {shape for one in table for shape in _shapes(one) if shape is not None}
    ordered = [*sorted(shapes, key=repr), form.Problem]
    _, components = msgspec.json.schema_components(ordered, schema_hook=_hook, ref_template=_REFERENCE)
    _say_more(components)
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "headrace",
            "version": version,
            "description": "Queues over HTTP. Lengths of time are seconds; what ends in _ms is Unix milliseconds.",
        },
        "tags": [{"name": name, "description": what} for name, what in TAGS.items()],
        "paths": paths,
        "components": {"schemas": components},
    }


def _shapes(one: Operation) -> Iterable[type[Any] | None]:
    return (*one.takes, *one.takes_packed, *one.answers.values(), *one.answers_packed.values())


def _hook(kind: type[Any]) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"description": "any JSON value"}
    raise NotImplementedError  # how msgspec is told that a type has no schema: it then names the type


def _say_more(components: dict[str, Any]) -> None:
    """What the structs do not say: whole numbers by their name, keys that are numbers, bytes, what settings mean."""
    for schema in components.values():
        _name_integers(schema)
        # With a default, generators take a field for one that is always there, and answers leave out what is empty.
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
    components["Base64"]["properties"]["base64"]["pattern"] = BASE64_PATTERN
    positions = components["ReaderPositions"]["properties"]["positions"]
    positions["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,3})$"}
    settings = components["ConfigForm"]["properties"]
    for name, what in ABOUT_SETTINGS.items():
        settings[name]["description"] = what
    for shape in _PACKED:
        _name_bytes(components[shape.__name__])


def _name_bytes(schema: Any) -> None:
    """Bytes as they are in MessagePack; msgspec describes what they are in JSON."""
    if isinstance(schema, dict):
        if schema.pop("contentEncoding", None) is not None:
            schema |= _BINARY
        if schema.get("items") is False:
            del schema["items"]  # the length says as much, and there are generators which no schema may be false for
        for inner in schema.values():
            _name_bytes(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _name_bytes(inner)


def _name_integers(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("multipleOf") == 1:
            del schema["multipleOf"]
            schema["type"] = "integer"
        for inner in schema.values():
            _name_integers(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _name_integers(inner)


def _operation(one: Operation) -> dict[str, Any]:
    value: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.tag],
        "summary": one.summary,
        "parameters": [*_path_parameters(one.path), *one.query],
        "responses": {str(status): _answer(one, status, shape) for status, shape in one.answers.items()}
        | {"default": {"description": "refused", "content": {_PROBLEM: {"schema": _reference(form.Problem)}}}}
        | {str(status): _refusal(status) for status in one.refusals},
    }
    if one.more:
        value["description"] = one.more
    if one.takes:
        value["requestBody"] = {"required": not one.takes_optional, "content": _bodies(one)}
    return value


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]} for name in names]


def _reference(shape: type[Any]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(name=shape.__name__)}


def _any_of(shapes: Shapes) -> dict[str, Any]:
    references = [_reference(shape) for shape in shapes]
    return {"schema": references[0] if len(references) == 1 else {"oneOf": references}}


def _bodies(one: Operation) -> dict[str, Any]:
    bodies = {_JSON: _any_of(one.takes)}
    if one.example is not None:
        bodies[_JSON]["example"] = one.example
    if one.takes_packed:
        bodies[_MSGPACK] = _any_of(one.takes_packed)
    if one.takes_raw:
        bodies[_BYTES] = {"schema": {**_BINARY, "description": "the message; any other type is taken likewise"}}
    return bodies


def _answer(one: Operation, status: int, shape: type[Any] | None) -> dict[str, Any]:
    if shape is None:
        return {"description": "done"}
    value: dict[str, Any] = {
        "description": (shape.__doc__ or "done").split("\n")[0],
        "content": {_JSON: {"schema": _reference(shape)}},
    }
    packed = one.answers_packed.get(status)
    if packed is not None:
        value["content"][_MSGPACK] = {"schema": _reference(packed)}
    if one.links:
        # A queue that was asked about is the one that the next request is about.
        same = {"queue": "$request.path.queue"} if "{queue}" in one.path else {}
        value["links"] = {
            name: {"operationId": name, "parameters": {**same, parameter: f"$response.body#{place}"}}
            for name, parameter, place in one.links
        }
    return value


_REFUSALS = {
    400: "it cannot be read: no JSON, no valid name, a receipt that was not signed here",
    403: "not on this listener",
    404: "there is no such thing",
    409: "it does not fit what is there: something of this name that is different, a transaction that is over",
    410: "the lease is over",
    413: "too large",
    415: "a type of body that is not taken",
    422: "JSON of another shape; `field` says where",
    429: "a limit is reached; `Retry-After` says when to come back",
    507: "the disk is full",
}


_RETRY_AFTER = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}}


def _refusal(status: int) -> dict[str, Any]:
    value = {"description": _REFUSALS[status], "content": {_PROBLEM: {"schema": _reference(form.Problem)}}}
    return value | {"headers": _RETRY_AFTER} if status in (429, 507) else value
