"""The API's description, in OpenAPI 3.1: operations from one table, shapes from the structs that requests become.

`operations` is the table. Everything that a client may send is described as strictly as it is checked, so that a
generator which follows the description is never surprised by a refusal, and one that does not always is.
"""

from typing import Any, NamedTuple

import msgspec

from headrace.broker.queue.port import Explanation, MessageState
from headrace.gateways.rest import form, queue_form, transaction_form
from headrace.gateways.rest.config_form import NewQueue, QueueChange
from headrace.model.names import NAME_LENGTH_MAX

OPENAPI = "3.1.0"
NAME_PATTERN = rf"^(?!\.{{1,2}}$)[A-Za-z0-9._\-]{{1,{NAME_LENGTH_MAX}}}$"
PLACE_PATTERN = "^[0-9]{1,4}-[0-9]{1,15}$"
BASE64_PATTERN = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_REFERENCE = "#/components/schemas/{name}"
_JSON, _MSGPACK, _PROBLEM = "application/json", "application/msgpack", "application/problem+json"


class Operation(NamedTuple):
    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, type[Any] | None]
    takes: tuple[type[Any], ...] = ()
    takes_optional: bool = False
    query: tuple[dict[str, Any], ...] = ()
    refusals: tuple[int, ...] = (404, 422)
    more: str = ""
    links: tuple[tuple[str, str, str], ...] = ()  # operation, its parameter, where that is in the answer


def _field(name: str, what: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": what, "schema": schema}


def _seconds(name: str, what: str, at_most: float) -> dict[str, Any]:
    return _field(name, f"{what}, in seconds", type="number", minimum=0, maximum=at_most)


_LIMIT = _field("limit", "how many at most", type="integer", minimum=1, maximum=1_000)
_AFTER = _field("after", "go on behind this one", type="string")


_BYTES = "With application/msgpack, in Content-Type or Accept, bodies, keys and headers are bytes."
_SEND_MORE = (
    f"{_BYTES} A body of any other type is the message itself; its options stand in the query or in headers, as in "
    "headrace-priority. Beside JSON and MessagePack, where they have their places in the body, they are refused."
)


def operations(*, wait_seconds_max: float) -> list[Operation]:
    """Everything that is served, but what the node says about itself."""
    return [*_of_messages(wait_seconds_max), *_of_transactions(), *_of_queues(), *_of_looking()]


def _of_messages(wait_seconds_max: float) -> list[Operation]:
    queue, message = "/queues/{queue}", "/queues/{queue}/messages/{receipt_handle}"
    batch: dict[int, type[Any] | None] = {200: form.Results}
    return [
        Operation(
            "post", f"{queue}/messages", "send", "Send a message, or several; the queue is made on the first send",
            {201: form.Stored, 200: form.SendResults}, (form.NewMessage, form.NewMessages),
            refusals=(400, 409, 413, 415, 422, 429, 507), more=_SEND_MORE,
        ),
        Operation(
            "get", f"{queue}/messages", "receive", "Lease messages, waiting for the first if asked to",
            {200: form.ReceivedMessages},
            query=(
                _field("batch_size", "how many at most", type="integer", minimum=1, maximum=form.ENTRIES_MAX),
                _seconds("wait", "how long to wait for the first", wait_seconds_max),
                _seconds("lease", "how long they are yours", form.LEASE_SECONDS_MAX),
                _field("attempt_id", "repeat it to get the same messages", type="string", minLength=1,
                       maxLength=form.TEXT_LENGTH_MAX),
            ),
            refusals=(400, 404, 422, 429), more=_BYTES,
            links=(("acknowledge", "receipt_handle", "/messages/0/receipt_handle"),
                   ("change", "receipt_handle", "/messages/0/receipt_handle")),
        ),
        Operation("delete", message, "acknowledge", "Acknowledge a message: it is done", {204: None},
                  refusals=(400, 404, 410)),
        Operation("patch", message, "change", "Extend a lease, or release or reject its message", {204: None},
                  (form.LeaseChange,), refusals=(400, 404, 410, 415, 422)),
        Operation("post", f"{queue}/acknowledgements", "acknowledge_batch", "Acknowledge several messages", batch,
                  (form.Acknowledgements,), refusals=(400, 404, 415, 422), more=_BYTES),
        Operation("post", f"{queue}/extensions", "extend_batch", "Extend several leases, from now on", batch,
                  (form.Extensions,), refusals=(400, 404, 415, 422), more=_BYTES),
        Operation("post", f"{queue}/releases", "release_batch", "Give several messages back", batch,
                  (form.Releases,), refusals=(400, 404, 415, 422), more=_BYTES),
        Operation("post", f"{queue}/rejections", "reject_batch", "Send several messages to the dead-letter queue",
                  batch, (form.Rejections,), refusals=(400, 404, 415, 422), more=_BYTES),
    ]  # fmt: skip


def _of_transactions() -> list[Operation]:
    transaction = "/transactions/{transaction}"
    queue = f"{transaction}/queues/{{queue}}"
    ends = (("commit", "transaction", "/id"), ("abort", "transaction", "/id"))
    return [
        Operation("post", "/transactions", "begin", "Begin a transaction", {201: transaction_form.BegunTransaction},
                  (transaction_form.NewTransaction,), takes_optional=True, refusals=(400, 415, 422, 429),
                  more="It is aborted by itself when its time is over, and when the node restarts.",
                  links=(("send_in_transaction", "transaction", "/id"), *ends)),
        Operation("post", f"{queue}/messages", "send_in_transaction",
                  "Send a message, or several, which are there once the transaction commits",
                  {201: form.Stored, 200: form.SendResults}, (form.NewMessage, transaction_form.TransactionMessages),
                  refusals=(400, 404, 409, 413, 415, 422, 429, 507),
                  more=f"To a queue, or to a topic that is no queue. Not to be repeated in doubt. {_SEND_MORE}"),
        Operation("post", f"{queue}/acknowledgements", "acknowledge_in_transaction",
                  "Acknowledge messages, which are done once the transaction commits and visible again if it aborts",
                  {200: form.Results}, (form.Acknowledgements,), refusals=(400, 404, 409, 415, 422), more=_BYTES),
        Operation("post", f"{transaction}/commit", "commit", "Let all of a transaction count; may be repeated",
                  {204: None}, refusals=(400, 404, 409, 422)),
        Operation("post", f"{transaction}/abort", "abort", "Let nothing of a transaction count; may be repeated",
                  {204: None}, refusals=(400, 404, 409, 422)),
    ]  # fmt: skip


def _of_queues() -> list[Operation]:
    queue = "/queues/{queue}"
    return [
        Operation("get", "/queues", "list_queues", "List queues by name", {200: queue_form.QueueList},
                  query=(_field("prefix", "how their names begin", type="string"), _AFTER, _LIMIT),
                  refusals=(400, 422)),
        Operation("get", queue, "get_queue", "Show a queue: its configuration and its counts",
                  {200: queue_form.QueueForm}, refusals=(400, 404, 422)),
        Operation("put", queue, "create_queue", "Make a queue; nothing happens if it is there as described",
                  {201: queue_form.QueueForm, 200: queue_form.QueueForm}, (NewQueue,), takes_optional=True,
                  refusals=(400, 409, 415, 422)),
        Operation("patch", queue, "change_queue", "Change some of a queue's configuration", {200: queue_form.QueueForm},
                  (QueueChange,), refusals=(400, 404, 409, 415, 422)),
        Operation("delete", queue, "delete_queue",
                  "Delete a queue and its messages, on the administrator's listener only", {204: None},
                  refusals=(400, 403, 404, 422)),
        Operation("post", f"{queue}/purge", "purge_queue", "Drop everything that was sent up to now",
                  {200: queue_form.Purged}, refusals=(400, 404, 422)),
    ]  # fmt: skip


def _of_looking() -> list[Operation]:
    queue = "/queues/{queue}"
    return [
        Operation("get", f"{queue}/browse", "browse_queue",
                  "Look at messages without taking them: those that are not done, or those in one state",
                  {200: queue_form.BrowsedMessages},
                  query=(_field("state", "only those; acknowledged: all that are done", type="string",
                                enum=[one.value for one in MessageState]),
                         _field("after", "go on behind this place", type="string", pattern=PLACE_PATTERN), _LIMIT),
                  refusals=(400, 404, 422), more=_BYTES),
        Operation("get", f"{queue}/explain", "explain",
                  "Say where a message is and since when, or why a key stands still; takes exactly one of the fields",
                  {200: Explanation},
                  query=(_field("id", "a message", type="string"), _field("key", "a key", type="string"),
                         _field("key_base64", "a key that is no text", type="string")),
                  refusals=(400, 404, 422)),
        Operation("get", f"{queue}/redrives", "list_redrives", "Show a queue's last redrives",
                  {200: queue_form.Redrives}, refusals=(400, 404, 422)),
        Operation("post", f"{queue}/redrives", "start_redrive", "Send dead letters back", {202: queue_form.RedriveForm},
                  (queue_form.NewRedrive,), takes_optional=True, refusals=(400, 404, 409, 415, 422),
                  links=(("cancel_redrive", "id", "/id"),)),
        Operation("delete", f"{queue}/redrives/{{id}}", "cancel_redrive", "Stop a redrive",
                  {200: queue_form.RedriveForm}, refusals=(400, 404, 409, 422)),
        Operation("get", f"{queue}/readers", "list_readers", "Show the readers that hold the queue's log",
                  {200: queue_form.Readers}, refusals=(400, 404, 422)),
        Operation("get", f"{queue}/readers/{{name}}", "get_reader", "Show how far a reader has read",
                  {200: queue_form.ReaderForm}, refusals=(400, 404, 422)),
        Operation("put", f"{queue}/readers/{{name}}", "move_reader", "Register a reader, or note how far it has read",
                  {200: queue_form.ReaderForm}, (queue_form.ReaderPositions,), takes_optional=True,
                  refusals=(400, 404, 409, 415, 422)),
        Operation("delete", f"{queue}/readers/{{name}}", "remove_reader", "Let go of what a reader holds", {204: None},
                  refusals=(400, 404, 422)),
    ]  # fmt: skip


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
    shapes = {shape for one in table for shape in (*one.takes, *one.answers.values()) if shape is not None}
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
        "paths": paths,
        "components": {"schemas": components},
    }


def _hook(kind: type[Any]) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"description": "any JSON value"}
    raise NotImplementedError  # how msgspec is told that a type has no schema: it then names the type


def _say_more(components: dict[str, Any]) -> None:
    """What the structs do not say: whole numbers by their name, one field of several, keys that are numbers."""
    for schema in components.values():
        _name_integers(schema)
    change = components["LeaseChange"]
    change["oneOf"] = [{"required": [name]} for name in ("lease", "release", "reject")]
    components["Base64"]["properties"]["base64"]["pattern"] = BASE64_PATTERN
    positions = components["ReaderPositions"]["properties"]["positions"]
    positions["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,3})$"}


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


def _bodies(one: Operation) -> dict[str, Any]:
    references = [_reference(shape) for shape in one.takes]
    schema = references[0] if len(references) == 1 else {"oneOf": references}
    return {_JSON: {"schema": schema}}


def _answer(one: Operation, status: int, shape: type[Any] | None) -> dict[str, Any]:
    if shape is None:
        return {"description": "done"}
    value = {
        "description": (shape.__doc__ or "done").split("\n")[0],
        "content": {_JSON: {"schema": _reference(shape)}},
    }
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


def _refusal(status: int) -> dict[str, Any]:
    return {"description": _REFUSALS[status], "content": {_PROBLEM: {"schema": _reference(form.Problem)}}}
