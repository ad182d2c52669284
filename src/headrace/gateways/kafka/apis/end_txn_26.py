"""EndTxn (key 26), versions 0 to 5: a producer commits or aborts its transaction.

Answered when the decision is committed and everybody has heard of it, so whoever reads committed messages afterwards
sees them. From 5 (KIP-890) the end raises the producer's epoch, and the answer has what the producer goes on with;
aborting where nothing is open is then no error. A fenced producer gets PRODUCER_FENCED from 2, INVALID_PRODUCER_EPOCH
before.
"""

from headrace.folds.transaction.fold import Producer
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode
from headrace.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_BUMPED_FROM = 5


async def _handle(context: Context, request: EndTxnRequest, version: int) -> EndTxnResponse:
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    is_bumped = version >= _BUMPED_FROM
    producer_id, epoch = await context.transactions.end(producer, is_commit=request.committed, is_bumped=is_bumped)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch) if is_bumped else EndTxnResponse()


def _refuse(request: EndTxnRequest, version: int, code: int, message: str) -> EndTxnResponse:
    if code == ErrorCode.INVALID_PRODUCER_EPOCH and version >= _FENCED_FROM:
        code = int(ErrorCode.PRODUCER_FENCED)
    return EndTxnResponse(error_code=code)


API = Api(key=26, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
