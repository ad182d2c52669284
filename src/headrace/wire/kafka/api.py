"""What one API of the protocol is: its key, its versions, its headers, and its codec, imported when first asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from headrace.wire.kafka.primitives import FlexibleReader, FlexibleWriter, Reader, Writer

API_VERSIONS_KEY = 18


class Codec(NamedTuple):
    """The message types of an API with their readers and writers, for callers that handle any API alike."""

    request: type
    response: type
    read_request: Callable[[Reader, int], Any]
    write_request: Callable[[Writer, Any, int], None]
    read_response: Callable[[Reader, int], Any]
    write_response: Callable[[Writer, Any, int], None]


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    stable_version: int  # the highest that is not marked unstable
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions answers with header 0 always: a client reads it before it knows what we speak (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0

    def reader(self, version: int) -> type[Reader]:
        return FlexibleReader if self.is_flexible(version) else Reader

    def writer(self, version: int) -> type[Writer]:
        return FlexibleWriter if self.is_flexible(version) else Writer

    @property
    def codec(self) -> Codec:
        return _codec(self.name, self.module)


@cache
def _codec(name: str, module_name: str) -> Codec:
    # All modules together take longer to import than the rest of the node; most nodes use a third of them.
    module = import_module(f"headrace.wire.kafka.messages.{module_name}")
    return Codec(
        request=getattr(module, f"{name}Request"),
        response=getattr(module, f"{name}Response"),
        read_request=module.read_request,
        write_request=module.write_request,
        read_response=module.read_response,
        write_response=module.write_response,
    )
