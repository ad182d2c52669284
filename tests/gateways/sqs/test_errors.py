"""The table from headrace's errors to SQS's has every class."""

import ast
import inspect
import json
import re
from pathlib import Path

import pytest
from tests.gateways.sqs.door import Door, Refused

import headrace.gateways.sqs.gateway
from headrace.gateways.http.message import RefusedError
from headrace.gateways.sqs.errors import KINDS, kind_of, to_sqs
from headrace.model import errors
from headrace.model.errors import HeadraceError, NotLeaderError
from headrace.model.queue import Queue
from headrace.security.sigv4 import Failure, SignatureRefusedError
from headrace.wire.sqs.error import QUEUE_DOES_NOT_EXIST, UNAVAILABLE

EVERY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadraceError)]
# What headrace calls things that no client of SQS has heard of.
INTERNAL = re.compile(
    r"(?<!<)\b(partition|offset|fold|lease|journal|epoch|segment|leader|dead_letter|max_deliveries)s?\b", re.IGNORECASE
)
REFUSING = {
    "SqsError",
    "invalid",
    "invalid_value",
    "missing",
    "_refuse",
    "_invalid",
    "_malformed",
    "_not_allowed",
    "refuse",
}
SOURCES = [
    path
    for room in ("gateways/sqs", "wire/sqs")
    for path in sorted((Path(headrace.gateways.sqs.gateway.__file__).parents[2] / room).glob("*.py"))
]


def made(kind: type[HeadraceError]) -> HeadraceError:
    """An error that speaks of nothing but what is internal, as far as its class leaves that to its caller."""
    words = "node 2 is the leader; its journal, segment and fold have no lease at offset 7 of partition 3, epoch 1"
    if not inspect.isfunction(kind.__init__):
        return kind(words)
    required = [one for one in inspect.signature(kind).parameters.values() if one.default is one.empty]
    arguments = [words if one.name == "message" else "orders" for one in required if one.kind is not one.KEYWORD_ONLY]
    return kind(*arguments, **{one.name: 0 for one in required if one.kind is one.KEYWORD_ONLY})


def test_every_error_class_has_its_own_entry() -> None:
    assert set(EVERY) - set(KINDS) == set()


@pytest.mark.parametrize("kind", EVERY)
def test_no_error_tells_a_client_of_what_is_internal(kind: type[HeadraceError]) -> None:
    message = to_sqs(made(kind)).message
    assert message
    assert INTERNAL.search(message) is None, message


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_no_refusal_is_written_in_internal_terms(source: Path) -> None:
    calls = [
        call
        for call in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in REFUSING
    ]
    texts = [part.value for call in calls for part in ast.walk(call) if isinstance(part, ast.Constant)]
    assert [text for text in texts if isinstance(text, str) and INTERNAL.search(text)] == []


def test_a_class_that_is_derived_elsewhere_takes_the_kind_of_its_parent() -> None:
    class ElsewhereError(NotLeaderError):
        pass

    assert kind_of(ElsewhereError) is UNAVAILABLE


def test_an_unexpected_exception_does_not_show_its_words_to_clients() -> None:
    refusal = to_sqs(KeyError("/secret/path"))
    assert refusal.kind.status == 500
    assert "secret" not in refusal.message


def test_every_failure_of_a_signature_keeps_its_name() -> None:
    for failure in Failure:
        assert to_sqs(SignatureRefusedError(failure, "no")).kind.code == failure.value


def test_what_the_server_refuses_keeps_its_status() -> None:
    for status in (400, 408, 413, 500, 503):
        assert to_sqs(RefusedError(status, "code", "detail")).kind.status == status


def test_a_topic_that_is_not_a_queue_is_told_with_the_command_that_converts_it() -> None:
    said = to_sqs(errors.NotAQueueError.of("clicks"))
    assert said.kind is QUEUE_DOES_NOT_EXIST
    assert said.message == (
        "The specified queue does not exist. There is a Kafka topic named clicks; the command "
        "`headrace queue create clicks` converts it to a queue."
    )


@pytest.mark.parametrize(
    ("operation", "parameter"),
    [
        ("StartMessageMoveTask", "SourceArn"),
        ("ListMessageMoveTasks", "SourceArn"),
        ("SetQueueAttributes", "RedrivePolicy"),
    ],
)
def test_an_arn_of_a_topic_that_is_not_a_queue_is_told_with_the_command_that_converts_it(
    operation: str, parameter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, arn = Door(), "arn:aws:sqs:us-east-1:000000000000:clicks"
    url = door.call("CreateQueue", QueueName="tasks")["QueueUrl"]
    find = door.queues.find

    def find_queue(name: str) -> Queue:
        if name == "clicks":
            raise errors.NotAQueueError.of(name)
        return find(name)

    monkeypatch.setattr(door.queues, "find", find_queue)
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})}
    given = {"SourceArn": arn} if parameter == "SourceArn" else {"QueueUrl": url, "Attributes": policy}
    with pytest.raises(Refused, match=r"exist\. There is a Kafka topic named clicks; .*`headrace queue create clicks`"):
        door.call(operation, **given)


def test_a_topic_that_holds_records_is_not_converted_by_creating_a_queue() -> None:
    door = Door()
    door.queues.create_errors = [errors.TopicHasRecordsError.of("clicks holds 3 records.")]
    with pytest.raises(Refused, match="a Kafka topic of this name that holds records") as refused:
        door.call("CreateQueue", QueueName="clicks")
    assert refused.value.code == "QueueAlreadyExists"


def test_a_queue_beyond_the_nodes_limits_is_told_so_and_not_that_a_parameter_is_wrong() -> None:
    door = Door()
    door.queues.create_errors = [errors.InvalidPartitionsError("this node has 10 partitions and may have 10")]
    with pytest.raises(Refused, match="as many queues and topics as the configuration allows") as refused:
        door.call("CreateQueue", QueueName="clicks")
    assert refused.value.code == "OverLimit"
