"""What is served, as a table: every operation with what it takes, what it answers, and in which forms.

It has no more than the description of the API and its tests need; the routes themselves are in `message`,
`transaction` and `queue`, and a test holds that the two have the same.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.broker.queue.port import Explanation, MessageState
from headrace.gateways.rest import form, queue_form, raw, transaction_form
from headrace.gateways.rest.config_form import NewQueue, QueueChange
from headrace.model.queue import PRIORITY_MAX

PLACE_PATTERN = "^[0-9]{1,4}-[0-9]{1,15}$"

MESSAGES, TRANSACTIONS, QUEUES = "messages", "transactions", "queues"
LOOKING, DEAD_LETTERS, READERS = "looking", "dead letters", "readers"
TAGS = {
    MESSAGES: "Send, receive, acknowledge. What was received is yours for its lease; what is not acknowledged by then "
    "is handed out again.",
    TRANSACTIONS: "Messages that are sent and messages that are acknowledged count together, or not at all.",
    QUEUES: "A queue is made by the first send to it, or with settings of its own.",
    LOOKING: "Where messages are and why, with nothing taken.",
    DEAD_LETTERS: "What was rejected or failed too often is in another queue, and can be sent back from there.",
    READERS: "Those who read a queue's log by offset, beside its workers, and hold it until they have read it.",
}

Shapes = tuple[type[Any], ...]
Answers = Mapping[int, type[Any] | None]


class Operation(NamedTuple):
    tag: str
    method: str
    path: str
    name: str
    summary: str
    answers: Answers
    takes: Shapes = ()
    takes_optional: bool = False
    example: Any = None  # of a body in JSON
    # In MessagePack, where that is spoken: what it takes, and what it answers to those who ask for it.
    takes_packed: Shapes = ()
    answers_packed: Answers = {}
    # Whether a body of another type is the message itself.
    takes_raw: bool = False
    query: tuple[dict[str, Any], ...] = ()
    refusals: tuple[int, ...] = (404, 422)
    more: str = ""
    links: tuple[tuple[str, str, str], ...] = ()  # operation, its parameter, where that is in the answer


def _field(name: str, what: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": what, "schema": schema}


def _seconds(name: str, what: str, at_most: float, at_least: float = 0) -> dict[str, Any]:
    return _field(name, f"{what}, in seconds", type="number", minimum=at_least, maximum=at_most)


def _text(name: str, what: str) -> dict[str, Any]:
    return _field(name, what, type="string", minLength=1, maxLength=form.TEXT_LENGTH_MAX)


_HANDLE = "RECEIPT_HANDLE"
_LIMIT = _field("limit", "how many at most", type="integer", minimum=1, maximum=1_000)
_AFTER = _field("after", "go on behind this one", type="string")

_BESIDE = "beside a body that is the message itself"
_RAW_OPTIONS = (
    _field("priority", f"{_BESIDE}: 9 is handed out first", type="integer", minimum=0, maximum=PRIORITY_MAX),
    _seconds("delay", f"{_BESIDE}: before it is visible", form.SECONDS_MAX),
    _seconds("ttl", f"{_BESIDE}: after which it is dropped", form.SECONDS_MAX, at_least=0.001),
    _text("key", f"{_BESIDE}: its key"),
    _text("deduplication_id", f"{_BESIDE}: sent again with the same, it is stored once"),
)
_RAW_MORE = (
    "A body of any type but JSON, MessagePack and HTML's forms is the message itself; its options stand in the query "
    f"or in headers, as in headrace-priority, and headers of its own in {raw.OWN_PREFIX}<name>. Beside JSON and "
    "MessagePack, where they have their places in the body, they are refused."
)


def operations(*, wait_seconds_max: float) -> list[Operation]:
    """Everything that is served, but what the node says about itself."""
    return [
        *_of_messages(wait_seconds_max),
        *_of_transactions(),
        *_of_queues(),
        *_of_looking(),
        *_of_dead_letters(),
        *_of_readers(),
    ]


def _of_messages(wait_seconds_max: float) -> list[Operation]:
    queue, message = "/queues/{queue}", "/queues/{queue}/messages/{receipt_handle}"
    sent: Answers = {201: form.Stored, 200: form.SendResults}
    changes: Shapes = (form.LeaseExtension, form.LeaseRelease, form.LeaseRejection)
    return [
        Operation(
            MESSAGES, "post", f"{queue}/messages", "send",
            "Send a message, or several; the queue is made on the first send",
            sent, (form.NewMessage, form.NewMessages), example={"message": "hello", "priority": 5, "delay": 10},
            takes_packed=(form.PackedMessages,), answers_packed=sent,
            takes_raw=True, query=_RAW_OPTIONS, refusals=(400, 404, 409, 413, 415, 422, 429, 507), more=_RAW_MORE,
        ),
        Operation(
            MESSAGES, "get", f"{queue}/messages", "receive", "Lease messages, waiting for the first if asked to",
            {200: form.ReceivedMessages}, answers_packed={200: form.PackedReceivedMessages},
            query=(
                _field("batch_size", "how many at most; 1 where nothing is said", type="integer", minimum=1,
                       maximum=form.ENTRIES_MAX),
                _seconds("wait", "how long to wait for the first", wait_seconds_max),
                _seconds("lease", "how long they are yours; what the queue says where nothing is said",
                         form.LEASE_SECONDS_MAX),
                _text("attempt_id", "repeat it to get the same messages"),
            ),
            refusals=(400, 404, 422, 429),
            links=(("acknowledge", "receipt_handle", "/messages/0/receipt_handle"),
                   ("change", "receipt_handle", "/messages/0/receipt_handle")),
        ),
        Operation(MESSAGES, "delete", message, "acknowledge", "Acknowledge a message: it is done", {204: None},
                  refusals=(400, 404, 410)),
        Operation(MESSAGES, "patch", message, "change", "Extend a lease, or release or reject its message", {204: None},
                  changes, takes_packed=changes, example={"release": {"delay": 5}}, refusals=(400, 404, 410, 415, 422)),
        _batch("acknowledgements", "acknowledge_batch", "Acknowledge several messages", form.Acknowledgements,
               {"receipt_handles": [_HANDLE]}),
        _batch("extensions", "extend_batch", "Extend several leases, from now on", form.Extensions,
               {"extensions": [{"receipt_handle": _HANDLE, "lease": 60}]}),
        _batch("releases", "release_batch", "Give several messages back", form.Releases,
               {"releases": [{"receipt_handle": _HANDLE, "delay": 5}]}),
        _batch("rejections", "reject_batch", "Send several messages to the dead-letter queue", form.Rejections,
               {"rejections": [{"receipt_handle": _HANDLE, "reason": "no such customer"}]}),
    ]  # fmt: skip


def _taking(
    tag: str, method: str, path: str, name: str, summary: str, answers: Answers, shape: type[Any], **more: Any
) -> Operation:
    """An operation whose body has one shape, in JSON or MessagePack."""
    return Operation(tag, method, path, name, summary, answers, (shape,), takes_packed=(shape,), **more)


def _batch(what: str, name: str, summary: str, shape: type[Any], example: Any) -> Operation:
    done: Answers = {200: form.Results}
    path = f"/queues/{{queue}}/{what}"
    return _taking(MESSAGES, "post", path, name, summary, done, shape, example=example, answers_packed=done,
                   refusals=(400, 404, 415, 422))  # fmt: skip


def _of_transactions() -> list[Operation]:
    transaction = "/transactions/{transaction}"
    queue = f"{transaction}/queues/{{queue}}"
    ends = (("commit", "transaction", "/id"), ("abort", "transaction", "/id"))
    begun: Answers = {201: transaction_form.BegunTransaction}
    sent: Answers = {201: form.Stored, 200: form.SendResults}
    done: Answers = {200: form.Results}
    return [
        _taking(TRANSACTIONS, "post", "/transactions", "begin", "Begin a transaction", begun,
                transaction_form.NewTransaction, takes_optional=True, example={"timeout": 60}, answers_packed=begun,
                refusals=(400, 415, 422, 429),
                more="It is aborted by itself when its time is over, and when the node restarts.",
                links=(("send_in_transaction", "transaction", "/id"), *ends)),
        Operation(TRANSACTIONS, "post", f"{queue}/messages", "send_in_transaction",
                  "Send a message, or several, which are there once the transaction commits",
                  sent, (form.NewMessage, transaction_form.TransactionMessages),
                  takes_packed=(transaction_form.PackedTransactionMessages,), answers_packed=sent, takes_raw=True,
                  query=_RAW_OPTIONS, refusals=(400, 404, 409, 413, 415, 422, 429, 507),
                  more=f"To a queue, or to a topic that is no queue. Not to be repeated in doubt. {_RAW_MORE}"),
        _taking(TRANSACTIONS, "post", f"{queue}/acknowledgements", "acknowledge_in_transaction",
                "Acknowledge messages, which are done once the transaction commits and visible again if it aborts",
                done, form.Acknowledgements, answers_packed=done, refusals=(400, 404, 409, 415, 422)),
        Operation(TRANSACTIONS, "post", f"{transaction}/commit", "commit",
                  "Let all of a transaction count; may be repeated", {204: None}, refusals=(400, 404, 409, 422)),
        Operation(TRANSACTIONS, "post", f"{transaction}/abort", "abort",
                  "Let nothing of a transaction count; may be repeated", {204: None}, refusals=(400, 404, 409, 422)),
    ]  # fmt: skip


def _of_queues() -> list[Operation]:
    queue = "/queues/{queue}"
    return [
        Operation(QUEUES, "get", "/queues", "list_queues", "List queues by name", {200: queue_form.QueueList},
                  query=(_field("prefix", "how their names begin", type="string"), _AFTER, _LIMIT,
                         _field("describe", "show what they hold and how they are set too", type="boolean")),
                  refusals=(400, 422)),
        Operation(QUEUES, "get", queue, "get_queue", "Show a queue: its configuration and its counts",
                  {200: queue_form.QueueForm}, refusals=(400, 404, 422)),
        _taking(QUEUES, "put", queue, "create_queue", "Make a queue; nothing happens if it is there as described",
                {201: queue_form.QueueForm, 200: queue_form.QueueForm}, NewQueue, takes_optional=True,
                example={"config": {"lease": 60, "max_deliveries": 5}, "partitions": 4},
                refusals=(400, 409, 415, 422)),
        _taking(QUEUES, "patch", queue, "change_queue", "Change some of a queue's configuration",
                {200: queue_form.QueueForm}, QueueChange, example={"config": {"ttl": 3600}},
                refusals=(400, 404, 409, 415, 422)),
        Operation(QUEUES, "delete", queue, "delete_queue",
                  "Delete a queue and its messages, on the administrator's listener only", {204: None},
                  refusals=(400, 403, 404, 422)),
        Operation(QUEUES, "post", f"{queue}/purge", "purge_queue", "Drop everything that was sent up to now",
                  {200: queue_form.Purged}, refusals=(400, 404, 415, 422)),
    ]  # fmt: skip


def _of_looking() -> list[Operation]:
    queue = "/queues/{queue}"
    return [
        Operation(LOOKING, "get", f"{queue}/browse", "browse_queue",
                  "Look at messages without taking them: those that are not done, or those in one state",
                  {200: queue_form.BrowsedMessages}, answers_packed={200: queue_form.PackedBrowsedMessages},
                  query=(_field("state", "only those; acknowledged: all that are done", type="string",
                                enum=[one.value for one in MessageState if one.is_browsable]),
                         _field("after", "go on behind this place", type="string", pattern=PLACE_PATTERN), _LIMIT),
                  refusals=(400, 404, 422)),
        Operation(LOOKING, "get", f"{queue}/explain", "explain",
                  "Say where a message is and since when, or why a key stands still; takes exactly one of the fields",
                  {200: Explanation},
                  query=(_field("id", "a message", type="string"), _field("key", "a key", type="string"),
                         _field("key_base64", "a key that is no text", type="string")),
                  refusals=(400, 404, 422)),
    ]  # fmt: skip


def _of_dead_letters() -> list[Operation]:
    redrives = "/queues/{queue}/redrives"
    return [
        Operation(DEAD_LETTERS, "get", redrives, "list_redrives", "Show a queue's last redrives",
                  {200: queue_form.Redrives}, refusals=(400, 404, 422)),
        _taking(DEAD_LETTERS, "post", redrives, "start_redrive", "Send dead letters back",
                {202: queue_form.RedriveForm}, queue_form.NewRedrive, takes_optional=True,
                example={"filter": {"reason": "timeout"}, "rate": 50},
                refusals=(400, 404, 409, 415, 422), links=(("cancel_redrive", "id", "/id"),)),
        Operation(DEAD_LETTERS, "delete", f"{redrives}/{{id}}", "cancel_redrive", "Stop a redrive",
                  {200: queue_form.RedriveForm}, refusals=(400, 404, 409, 422)),
    ]  # fmt: skip


def _of_readers() -> list[Operation]:
    readers = "/queues/{queue}/readers"
    reader = f"{readers}/{{name}}"
    return [
        Operation(READERS, "get", readers, "list_readers", "Show the readers that hold the queue's log",
                  {200: queue_form.Readers}, refusals=(400, 404, 422)),
        Operation(READERS, "get", reader, "get_reader", "Show how far a reader has read",
                  {200: queue_form.ReaderForm}, refusals=(400, 404, 422)),
        # MessagePack is taken here too, with whole numbers as the keys of a map, which no schema can say.
        Operation(READERS, "put", reader, "move_reader", "Register a reader, or note how far it has read",
                  {200: queue_form.ReaderForm}, (queue_form.ReaderPositions,), takes_optional=True,
                  refusals=(400, 404, 409, 415, 422)),
        Operation(READERS, "delete", reader, "remove_reader", "Let go of what a reader holds", {204: None},
                  refusals=(400, 404, 422)),
    ]  # fmt: skip
