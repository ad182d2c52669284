"""DescribeClientQuotas (key 48), versions 0 and 1: there are no quotas, so every answer is empty.

The empty list is not null: Java's admin client takes null for an error.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def _handle(context: Context, request: DescribeClientQuotasRequest, version: int) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None)


def _refuse(
    request: DescribeClientQuotasRequest, version: int, code: int, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


API = Api(key=48, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
