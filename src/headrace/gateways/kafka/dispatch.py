"""From a frame to its handler, and from whatever the handler does to an answer.

Every request ends in exactly one of: an answer; no answer, where the protocol has none; a closed connection with a
reason. A handler's exception is turned into an answer with an error code where the API's response has a place for one.
"""

import inspect
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from headrace.gateways.kafka.answer import Answer, CloseConnectionError, Reply, Wait
from headrace.gateways.kafka.body import read_body
from headrace.gateways.kafka.context import AnyApi, Api, Context, PeerApi, RawApi
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.wire.kafka.api import API_VERSIONS_KEY
from headrace.wire.kafka.frame import (
    RequestHeader,
    encode_response,
    read_request_header,
    response_header,
)
from headrace.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from headrace.wire.kafka.primitives import INT32, MalformedError
from headrace.wire.kafka.registry import APIS

_FEATURES_FROM = 3  # of ApiVersions


class Dispatcher:
    """Serves frames. Called once for each; the result is an answer, or will become one."""

    def __init__(
        self, context: Context, apis: Iterable[AnyApi], features: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`features`: what clients ask for by name and not by the version of an API, with its level."""
        self._context = context
        self._features = features
        self._apis = {api.key: api for api in apis}
        assert API_VERSIONS_KEY in self._apis, "clients ask for ApiVersions before anything else"
        self._version_answers = self._encode_version_answers()

    def serve(self, frame: bytearray, host: str) -> Reply:
        try:
            header = read_request_header(frame)
        except MalformedError as error:
            raise CloseConnectionError("malformed request header", error=str(error)) from None
        api_key = header.api_key
        self._context.counters.count_request(api_key)
        api = self._apis.get(api_key)
        if isinstance(api, RawApi):
            return self._serve_raw(api, header, frame)
        if api_key == API_VERSIONS_KEY:
            return self._answer_versions(header, frame)
        if isinstance(api, PeerApi):
            return self._serve_raw(api.called_from(host), header, frame)
        if api is None:
            raise CloseConnectionError("unknown API", api_key=api_key, api_version=header.api_version)
        return self._serve(api, header, frame)

    def _serve(self, api: Api, header: RequestHeader, frame: bytearray) -> Reply:
        refusal = _version_refusal(api, header)
        request = _parse(header, frame)
        if refusal is not None:
            return self._refuse(api, header, request, refusal)
        try:
            response = api.handle(self._context, request, header.api_version)
        except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
            return self._refuse(api, header, request, self._context.explain(error))
        if inspect.isawaitable(response):
            work = self._finish(api, header, request, response)
            return Wait(work) if api.only_waits else work
        return self._encode(header, response)

    async def _finish(self, api: Api, header: RequestHeader, request: Any, response: Awaitable[Any]) -> Answer:
        try:
            return self._encode(header, await response)
        except CloseConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
            return self._refuse(api, header, request, self._context.explain(error))

    def _encode(self, header: RequestHeader, response: Any) -> Answer:
        return [encode_response(header.api_key, header.api_version, header.correlation_id, response)]

    def _refuse(self, api: Api, header: RequestHeader, request: Any, error: BaseException) -> Answer:
        code = code_of(error)
        self._context.counters.count_error(code)
        try:
            response = api.refuse(request, header.api_version, code, message_of(error))
            if response is not None:
                return self._encode(header, response)
        except Exception as failure:  # noqa: BLE001 - logged; the connection is closed
            self._context.warnings.fail("Kafka refusal could not be built", failure, api_key=api.key)
        raise CloseConnectionError("request refused", api_key=api.key, error=message_of(error))

    def _serve_raw(self, api: RawApi, header: RequestHeader, frame: bytearray) -> Reply:
        refusal = _version_refusal(api, header)
        try:
            if refusal is not None:
                return self._refuse_raw(api, header, frame, refusal)
            try:
                return api.serve(self._context, header, frame)
            except (CloseConnectionError, MalformedError):
                raise
            except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged by explain()
                return self._refuse_raw(api, header, frame, self._context.explain(error))
        except MalformedError as error:
            raise _malformed(header, error) from None

    def _refuse_raw(self, api: RawApi, header: RequestHeader, frame: bytearray, error: BaseException) -> Reply:
        code = code_of(error)
        self._context.counters.count_error(code)
        return api.refuse(self._context, header, frame, code, message_of(error))

    # ApiVersions: answered for any version, from bytes made once.

    def _answer_versions(self, header: RequestHeader, frame: bytearray) -> Answer:
        api = self._apis[API_VERSIONS_KEY]
        version = header.api_version
        if version not in self._version_answers:
            # KIP-511: version 0 of the answer, which every client can read, with the range that we know.
            low = ApiVersion(API_VERSIONS_KEY, api.version_min, api.version_max)
            refusal = ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), (low,))
            return [encode_response(API_VERSIONS_KEY, 0, header.correlation_id, refusal)]
        _parse(header, frame)
        length, body = self._version_answers[version]
        return [length + INT32.pack(header.correlation_id) + body]

    def _encode_version_answers(self) -> dict[int, tuple[bytes, bytes]]:
        ranges = tuple(
            ApiVersion(
                api.key,
                api.version_min if api.version_min_advertised is None else api.version_min_advertised,
                api.version_max,
            )
            for api in sorted(self._apis.values(), key=lambda api: api.key)
        )
        answers = {}
        own = self._apis[API_VERSIONS_KEY]
        for version in range(own.version_min, own.version_max + 1):
            response = ApiVersionsResponse(0, ranges)
            if self._features and version >= _FEATURES_FROM:
                response = ApiVersionsResponse(
                    0,
                    ranges,
                    supported_features=tuple(SupportedFeatureKey(name, 0, top) for name, top in self._features.items()),
                    finalized_features_epoch=1,
                    finalized_features=tuple(
                        FinalizedFeatureKey(name, top, top) for name, top in self._features.items()
                    ),
                )
            frame = encode_response(API_VERSIONS_KEY, version, 0, response)
            header_size = len(response_header(APIS[API_VERSIONS_KEY], version, 0))
            answers[version] = (frame[:4], frame[4 + header_size :])
        return answers


def _parse(header: RequestHeader, frame: bytearray) -> Any:
    try:
        return read_body(header, frame)
    except MalformedError as error:
        raise _malformed(header, error) from None


def _malformed(header: RequestHeader, error: MalformedError) -> CloseConnectionError:
    return CloseConnectionError(
        "malformed request", api_key=header.api_key, api_version=header.api_version, error=str(error)
    )


def _version_refusal(api: AnyApi, header: RequestHeader) -> RefusedError | None:
    """Why a version is not served, or None if it is. Where no answer can be written, the connection is closed."""
    version = header.api_version
    if api.version_min <= version <= api.version_max:
        return None
    known = APIS[api.key]
    lowest = known.min_version if api.version_min_advertised is None else api.version_min_advertised
    if not lowest <= version <= known.max_version:
        raise CloseConnectionError(
            "unsupported version", api_key=header.api_key, api_version=version, client_id=header.client_id
        )
    return RefusedError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{known.name} version {version} is not served; use {api.version_min} to {api.version_max}",
    )
