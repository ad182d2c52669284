"""Every message that the tables have, as parameters of tests."""

from headrace.wire.kafka.api import Api
from headrace.wire.kafka.registry import APIS

EVERY_MESSAGE: list[tuple[Api, int, str]] = [
    (api, version, kind)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for kind in ("request", "response")
]


def message_name(value: object) -> str:
    return value.name if isinstance(value, Api) else str(value)
