"""Every bound of the HTTP server, in one place."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Named limits. What goes above one is refused, held back or disconnected, never buffered."""

    # Request line and headers together, and how many headers.
    head_bytes_max: int = 16 * KIB
    headers_max: int = 100
    # One request's body, as it is handed to a route.
    body_bytes_max: int = 4 * MIB
    # What a chunked body may spend on sizes, extensions and trailers: it bounds the chunks, not only their sum.
    chunk_overhead_bytes_max: int = 64 * KIB
    # Bodies of all connections that are being read or served.
    bodies_in_flight_bytes_max: int = 128 * MIB

    # One connection's requests that are not answered yet; above it, the connection is not read.
    requests_in_flight_max: int = 32
    # Answers that the peer has not taken: above this its requests wait.
    write_pause_bytes: int = 256 * KIB
    # A peer that is behind has to take this much in this time.
    write_deadline_ms: int = 30_000
    write_progress_bytes_min: int = 16 * KIB

    # A head from its first byte to its last, a body from the head's end to its own, an answer from the body's end.
    head_deadline_ms: int = 10_000
    body_deadline_ms: int = 30_000
    answer_deadline_ms: int = 60_000
    # A connection between requests, and before its first.
    idle_ms_max: int = 75_000
    # After the last answer the rest of what the peer sends is read and dropped, or a reset could overtake the answer.
    # As long, a peer that has closed its half is still answered.
    linger_ms: int = 2_000
    linger_bytes_max: int = 8 * MIB

    # Above either, a new connection takes the place of an idle one (`gateways.connections`) or is refused. Many workers
    # behind one proxy share its address, so that may have most of the places.
    connections_max: int = 1_024
    connections_for_address_max: int = 768
    # How often deadlines are looked at, and so how late one may be noticed.
    sweep_ms: int = 500
    # A stopping node answers what is in flight for at most this long.
    stop_deadline_ms: int = 5_000
