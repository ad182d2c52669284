"""What the gateway counts, as plain integers: an exporter reads them when it is asked."""


class KafkaCounters:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections_closed_for_cause",
        "connections_open",
        "connections_refused",
        "connections_total",
        "errors_by_code",
        "handler_failures",
        "requests_by_api",
    )

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_total = 0
        self.connections_refused = 0
        # By the reason's constant text.
        self.connections_closed_for_cause: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests_by_api: dict[int, int] = {}
        # Answers with a Kafka error code, by code; one for each topic or partition that carries it.
        self.errors_by_code: dict[int, int] = {}
        # Exceptions that no rule expected; each was logged with its traceback.
        self.handler_failures = 0

    def count_request(self, api_key: int) -> None:
        self.requests_by_api[api_key] = self.requests_by_api.get(api_key, 0) + 1

    def count_error(self, code: int) -> None:
        self.errors_by_code[code] = self.errors_by_code.get(code, 0) + 1

    def count_closed(self, reason: str) -> None:
        self.connections_closed_for_cause[reason] = self.connections_closed_for_cause.get(reason, 0) + 1
