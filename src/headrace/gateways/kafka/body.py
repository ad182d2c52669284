"""Reading a request's body as leniently as Kafka does, and no more."""

from typing import Any

from headrace.wire.kafka.frame import RequestHeader
from headrace.wire.kafka.registry import APIS


def read_body(header: RequestHeader, frame: bytearray) -> Any:
    """The parsed request. Bytes behind it are passed over.

    Kafka passes over them too, and librdkafka 2.16 relies on it: its Metadata 13 for all topics writes the null array
    as four bytes where one is due, so that three are left over.
    """
    api = APIS[header.api_key]
    return api.codec.read_request(api.reader(header.api_version)(frame, header.body_position), header.api_version)
