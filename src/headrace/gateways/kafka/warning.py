"""Log lines that a peer can cause, limited in number: a peer must not be able to fill the disk with them."""

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
        """Say why a peer's connection was closed."""
        left_out = self._admit(reason)
        if left_out is not None:
            _LOGGER.warning("Kafka connection closed", extra={"reason": reason, "peer": peer, **left_out, **fields})

    def fail(self, message: str, error: BaseException, **fields: object) -> None:
        """Log the traceback of an error that no rule expected."""
        left_out = self._admit(message)
        if left_out is not None:
            _LOGGER.error(message, exc_info=error, extra={**left_out, **fields})

    def _admit(self, reason: str) -> dict[str, int] | None:
        """The fields that a line adds, or None where its window is full."""
        now_ms = self._clock.monotonic_ms()
        window = self._windows.get(reason)
        fields: dict[str, int] = {}
        if window is None or now_ms - window[0] >= WINDOW_MS:
            if window is not None and window[2]:
                fields["lines_left_out"] = window[2]
            window = self._windows[reason] = [now_ms, 0, 0]
        if window[1] >= LINES_MAX:
            window[2] += 1
            return None
        window[1] += 1
        return fields
