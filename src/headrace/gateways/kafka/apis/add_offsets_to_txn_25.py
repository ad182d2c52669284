"""AddOffsetsToTxn (key 25), versions 0 to 4: a group joins a producer's transaction, which will commit its offsets.

A fenced producer gets PRODUCER_FENCED from 2, INVALID_PRODUCER_EPOCH before.
"""

from headrace.folds.transaction.fold import Producer
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode
from headrace.model.errors import InvalidGroupIdError
from headrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM = 2


async def _handle(context: Context, request: AddOffsetsToTxnRequest, version: int) -> AddOffsetsToTxnResponse:
    if not request.group_id:
        raise InvalidGroupIdError("a group must have an id; set group.id")
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    await context.transactions.add(producer, groups=[request.group_id])
    return AddOffsetsToTxnResponse()


def _refuse(request: AddOffsetsToTxnRequest, version: int, code: int, message: str) -> AddOffsetsToTxnResponse:
    if code == ErrorCode.INVALID_PRODUCER_EPOCH and version >= _FENCED_FROM:
        code = int(ErrorCode.PRODUCER_FENCED)
    return AddOffsetsToTxnResponse(error_code=code)


API = Api(key=25, version_min=0, version_max=4, handle=_handle, refuse=_refuse)
