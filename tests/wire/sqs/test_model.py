"""The public service model, as botocore ships it, is the oracle: every operation and every field is known here."""

from typing import Any

import botocore.session
import msgspec
import pytest

from headrace.wire.sqs import answer, error
from headrace.wire.sqs.request import OPERATIONS

MODEL = botocore.session.get_session().get_service_model("sqs")

ANSWERS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "CancelMessageMoveTask": (answer.CancelledMove,),
    "ChangeMessageVisibilityBatch": (answer.Batch,),
    "CreateQueue": (answer.QueueUrl,),
    "DeleteMessageBatch": (answer.Batch,),
    "GetQueueAttributes": (answer.QueueAttributes,),
    "GetQueueUrl": (answer.QueueUrl,),
    "ListDeadLetterSourceQueues": (answer.SourceQueueUrls,),
    "ListMessageMoveTasks": (answer.MoveTasks,),
    "ListQueueTags": (answer.QueueTags,),
    "ListQueues": (answer.QueueUrls,),
    "ReceiveMessage": (answer.ReceivedMessages,),
    "SendMessage": (answer.SentMessage,),
    "SendMessageBatch": (answer.Batch,),
    "StartMessageMoveTask": (answer.StartedMove,),
}
MEMBERS: dict[str, type[msgspec.Struct]] = {
    "BatchResultErrorEntry": answer.FailedEntry,
    "ListMessageMoveTasksResultEntry": answer.MoveTask,
    "Message": answer.ReceivedMessage,
    "SendMessageBatchResultEntry": answer.SentEntry,
    "DeleteMessageBatchResultEntry": answer.DoneEntry,
    "ChangeMessageVisibilityBatchResultEntry": answer.DoneEntry,
}


def fields_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def required_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct) if field.required}


def test_every_operation_of_the_service_is_known_and_no_other() -> None:
    assert set(OPERATIONS) == set(MODEL.operation_names)


@pytest.mark.parametrize("name", MODEL.operation_names)
def test_every_parameter_is_known_and_the_required_ones_are_required(name: str) -> None:
    shape: Any = MODEL.operation_model(name).input_shape
    assert fields_of(OPERATIONS[name]) == set(shape.members)
    assert required_of(OPERATIONS[name]) == set(shape.required_members)


@pytest.mark.parametrize("name", MODEL.operation_names)
def test_every_answer_has_the_fields_of_the_model(name: str) -> None:
    shape: Any = MODEL.operation_model(name).output_shape
    if shape is None:
        assert name not in ANSWERS
        return
    for struct in ANSWERS[name]:
        assert fields_of(struct) == set(shape.members)
        # SQS leaves a list of a batch's outcomes out where it is empty, though its model calls both required.
        may_be_absent = {"Successful", "Failed"} if struct is answer.Batch else set()
        assert required_of(struct) >= set(shape.required_members) - may_be_absent


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_the_members_of_lists_have_the_fields_of_the_model(name: str) -> None:
    shape: Any = MODEL.shape_for(name)
    assert fields_of(MEMBERS[name]) == set(shape.members)


def test_errors_that_the_model_names_have_its_names() -> None:
    kinds = [kind for kind in vars(error).values() if isinstance(kind, error.ErrorKind)]
    ours = {
        kind.type.removeprefix("com.amazonaws.sqs#") for kind in kinds if kind.type.startswith("com.amazonaws.sqs#")
    }
    assert ours <= {shape.name for shape in MODEL.error_shapes}
