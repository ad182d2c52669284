"""InitProducerId (key 22), versions 0 to 5: an id for an idempotent or a transactional producer.

Without a transactional id every call gets a new id with epoch 0, also one that sends its old id and epoch (3+,
KIP-360): a new id fences as well as a raised epoch, and nothing has to be remembered.

With one, the coordinator raises the epoch, which fences older instances; an open transaction is aborted first, and the
answer waits for that. A fenced producer gets PRODUCER_FENCED from 4, INVALID_PRODUCER_EPOCH before.
"""

from headrace.broker.transaction.token import RESERVED_PREFIX
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM = 4
_NONE = -1


async def _handle(context: Context, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await context.broker.allocate_producer_id(), producer_epoch=0)
    if request.transactional_id.startswith(RESERVED_PREFIX):
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"transactional ids that begin with {RESERVED_PREFIX} are headrace's own; choose another",
        )
    expected = None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch)
    producer_id, epoch = await context.transactions.begin_producer(
        request.transactional_id, timeout_ms=request.transaction_timeout_ms, expected=expected
    )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _refuse(request: InitProducerIdRequest, version: int, code: int, message: str) -> InitProducerIdResponse:
    if code == ErrorCode.INVALID_PRODUCER_EPOCH and version >= _FENCED_FROM:
        code = int(ErrorCode.PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


API = Api(key=22, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
