"""InitProducerId (key 22), versions 0 to 5: an id for an idempotent producer.

Every call gets a new id with epoch 0, also one that sends its old id and epoch (3+, KIP-360): a new id fences as well
as a raised epoch, and nothing has to be remembered.

A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the one code that librdkafka, the Java client,
kafka-python and aiokafka all hand to their user as final, where others are retried for ever.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def _handle(context: Context, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise RefusedError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served")
    producer_id = await context.broker.allocate_producer_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse(request: InitProducerIdRequest, version: int, code: int, message: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


API = Api(key=22, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
