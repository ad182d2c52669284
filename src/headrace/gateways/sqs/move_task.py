"""Message move tasks: SQS's name for redriving dead letters."""

from base64 import b64decode, urlsafe_b64encode

import msgspec

from headrace.broker.queue.port import NO_SOURCE, Queues, Redrive, RedriveState
from headrace.gateways.sqs.errors import code_of, with_topic
from headrace.gateways.sqs.pending import Caller
from headrace.gateways.sqs.place import Places, name_of_arn
from headrace.model.errors import UnknownQueueError, UnknownRedriveError
from headrace.model.queue import Queue
from headrace.wire.sqs.answer import Answer, CancelledMove, MoveTask, MoveTasks, StartedMove
from headrace.wire.sqs.check import check_max_results
from headrace.wire.sqs.error import INVALID_VALUE, RESOURCE_NOT_FOUND, SqsError, invalid
from headrace.wire.sqs.request import CancelMessageMoveTask, ListMessageMoveTasks, StartMessageMoveTask

_RATE_MAX = 500
_RESULTS_MAX = 10
_NO_SOURCE = "CouldNotDetermineMessageSource"


class _Handle(msgspec.Struct, frozen=True):
    """What a task's handle holds. It opens nothing that its holder could not ask for anyway, so it is not signed."""

    id: str
    source: str


def _to_text(handle: _Handle) -> str:
    return urlsafe_b64encode(msgspec.json.encode(handle)).decode()


def _from_text(text: str) -> _Handle:
    try:
        return msgspec.json.decode(b64decode(text, altchars=b"-_", validate=True), type=_Handle)
    except (ValueError, msgspec.DecodeError):
        raise SqsError(INVALID_VALUE, "Value for parameter TaskHandle is invalid.") from None


def _failure_of(code: str | None) -> str:
    """Why a task failed, by the code that SQS has for it."""
    return _NO_SOURCE if code == NO_SOURCE else code_of(code)


def _no_resource(parameter: str, error: UnknownQueueError) -> SqsError:
    message = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return SqsError(RESOURCE_NOT_FOUND, with_topic(message, error))


class Moving:
    """The operations on move tasks."""

    def __init__(self, queues: Queues, places: Places) -> None:
        self._queues = queues
        self._places = places

    def _source(self, arn: str) -> Queue:
        try:
            return self._queues.find(name_of_arn(arn, "SourceArn"))
        except UnknownQueueError as error:
            raise _no_resource("SourceArn", error) from None

    async def start_message_move_task(self, request: StartMessageMoveTask, caller: Caller) -> Answer:
        source, target = self._source(request.source_arn), None
        rate = request.max_number_of_messages_per_second
        if rate is not None and not 1 <= rate <= _RATE_MAX:
            reason = f"You must enter a number that's between 1 and {_RATE_MAX}."
            raise invalid("MaxNumberOfMessagesPerSecond", reason)
        if not self._queues.dead_letter_sources(source.name):
            raise SqsError(INVALID_VALUE, "Source queue must be configured as a Dead Letter Queue.")
        if request.destination_arn is not None:
            target = self._target(request.destination_arn, source)
        redrive = await self._queues.redrive(source.name, target=target, rate_per_second=rate)
        return StartedMove(task_handle=_to_text(_Handle(redrive.id, source.name)))

    def _target(self, arn: str, source: Queue) -> str:
        try:
            target = self._queues.find(name_of_arn(arn, "DestinationArn"))
        except UnknownQueueError as error:
            raise _no_resource("DestinationArn", error) from None
        if target.name == source.name:
            raise SqsError(INVALID_VALUE, "Source queue arn and destination queue arn cannot be the same.")
        if target.config.ordered != source.config.ordered:
            raise SqsError(INVALID_VALUE, "The source queue and destination queue must be of the same queue type.")
        return target.name

    async def cancel_message_move_task(self, request: CancelMessageMoveTask, caller: Caller) -> Answer:
        handle = _from_text(request.task_handle)
        try:
            redrive = await self._queues.cancel_redrive(handle.source, handle.id)
        except UnknownQueueError as error:
            raise _no_resource("SourceArn", error) from None
        except UnknownRedriveError:
            raise SqsError(RESOURCE_NOT_FOUND, "Task does not exist.") from None
        return CancelledMove(approximate_number_of_messages_moved=redrive.moved)

    def list_message_move_tasks(self, request: ListMessageMoveTasks, caller: Caller) -> Answer:
        source = self._source(request.source_arn)
        count = check_max_results(request.max_results, _RESULTS_MAX) or 1
        return MoveTasks(results=[self._task(redrive) for redrive in self._queues.redrives(source.name)[:count]])

    def _task(self, redrive: Redrive) -> MoveTask:
        is_running = redrive.state is RedriveState.RUNNING
        return MoveTask(
            task_handle=_to_text(_Handle(redrive.id, redrive.queue)) if is_running else None,
            status=redrive.state.name,
            source_arn=self._places.arn(redrive.queue),
            destination_arn=None if redrive.target is None else self._places.arn(redrive.target),
            max_number_of_messages_per_second=redrive.rate_per_second,
            approximate_number_of_messages_moved=redrive.moved,
            approximate_number_of_messages_to_move=redrive.total,
            failure_reason=None if redrive.failure is None else _failure_of(redrive.failure_code),
            started_timestamp=redrive.started_ms,
        )
