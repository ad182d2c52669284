"""Warnings about peers, limited in number: whoever can cause a log line must not be able to fill the disk with them."""

import logging

from headrace.host.clock import Clock

_LOGGER = logging.getLogger("headrace.gateways.kafka")

WINDOW_MS = 10_000
LINES_MAX = 10


class PeerWarnings:
    """At most LINES_MAX lines for each reason in WINDOW_MS; the next line says how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By reason: when its window began, lines in it, lines left out. Reasons are constants, so this stays small.
        self._windows: dict[str, list[int]] = {}

    def warn(self, reason: str, peer: str, fields: dict[str, object]) -> None:
        now_ms = self._clock.monotonic_ms()
        window = self._windows.get(reason)
        if window is None or now_ms - window[0] >= WINDOW_MS:
            left_out = window[2] if window is not None else 0
            window = self._windows[reason] = [now_ms, 0, 0]
            if left_out:
                fields = {**fields, "lines_left_out": left_out}
        if window[1] >= LINES_MAX:
            window[2] += 1
            return
        window[1] += 1
        _LOGGER.warning("Kafka connection closed", extra={"reason": reason, "peer": peer, **fields})
