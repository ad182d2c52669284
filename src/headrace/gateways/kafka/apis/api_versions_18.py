"""ApiVersions (key 18), versions 0 to 4: which APIs and versions this gateway serves.

It is answered by the dispatcher, which knows all of them, from bytes made once; here is only its entry. A version that
we do not know gets the answer of version 0 with UNSUPPORTED_VERSION and our range (KIP-511). From 3 features are named
that clients ask for before they use them: `transaction.version` 2 lets producers raise their epoch with every
transaction (KIP-890).
"""

from typing import Any

from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.api_versions import ApiVersionsResponse


def _handle(context: Context, request: Any, version: int) -> ApiVersionsResponse:
    raise AssertionError("the dispatcher answers ApiVersions")


def _refuse(request: Any, version: int, code: int, message: str) -> ApiVersionsResponse:
    return ApiVersionsResponse(code)


API = Api(key=18, version_min=0, version_max=4, handle=_handle, refuse=_refuse)
