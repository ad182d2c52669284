"""Every bound of the Kafka gateway, in one place."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class KafkaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Named limits. What goes above one is refused, held back or disconnected, never buffered."""

    # One request's frame. Before a connection is authenticated it will be the smaller of the two.
    frame_bytes_max: int = 100 * MIB
    frame_bytes_unauthenticated_max: int = 512 * KIB
    # How much of a frame is allocated ahead of what has arrived: a length that lies costs this much.
    frame_ahead_bytes: int = 1 * MIB
    # Frames in flight, over all connections. Above it connections wait before they read on.
    frames_in_flight_bytes_max: int = 512 * MIB
    # One read of a socket, shared by all connections because a read is parsed before the next one begins.
    receive_bytes: int = 64 * KIB

    # One connection's requests that are not answered yet; above either, it is not read.
    requests_in_flight_max: int = 4096
    requests_in_flight_bytes_max: int = 64 * MIB

    # Answers that the peer has not taken: above the first its requests wait, above the second it is disconnected.
    write_pause_bytes: int = 1 * MIB
    write_buffer_bytes_max: int = 160 * MIB
    # A peer that is behind has to take this much in this time.
    write_deadline_ms: int = 30_000
    write_progress_bytes_min: int = 64 * KIB

    # A frame, from its first byte to its last.
    frame_deadline_ms: int = 30_000
    connection_idle_ms_max: int = 600_000
    # Above either, a new connection takes the place of an idle one (`gateways.connections`) or is refused. Many workers
    # behind one proxy share its address, so that may have most of the places.
    connections_max: int = 10_000
    connections_for_address_max: int = 7_500
    # How often deadlines are looked at, and so how late one may be noticed.
    sweep_ms: int = 1_000
    # A stopping node answers what is in flight for at most this long.
    stop_deadline_ms: int = 5_000

    # What a client may ask for in one request.
    fetch_bytes_max: int = 55 * MIB
    fetch_wait_ms_max: int = 60_000
    produce_timeout_ms_max: int = 300_000
    # Whole Metadata answers that are kept for the next client that asks the same.
    metadata_answers_max: int = 64
