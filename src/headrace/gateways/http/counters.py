"""What the server counts, as plain integers: an exporter reads them when it is asked."""

from collections import defaultdict

# The route's name for requests that were refused before a route was found.
NO_ROUTE = "none"


class HttpCounters:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed_for_cause",
        "connections_open",
        "connections_refused",
        "connections_total",
        "handler_failures",
        "requests",
    )

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_total = 0
        self.connections_refused = 0
        # Connections cut or refused for what the peer did, by the problem's stable code.
        self.closed_for_cause: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        # By route (its path as declared, never as asked for) and status.
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        # Exceptions that no rule expected; each was logged with its traceback.
        self.handler_failures = 0

    def count_closed(self, code: str) -> None:
        self.closed_for_cause[code] = self.closed_for_cause.get(code, 0) + 1
