"""Tells a program's log that a client reaches no node and tries again, which it would otherwise do in silence."""

import logging

from headrace.client.errors import UnreachableError
from headrace.model.errors import HeadraceError

_LOGGER = logging.getLogger("headrace.client")


class Outage:
    """One line when it begins and one when it ends, however many calls meet it."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False

    def note(self, error: HeadraceError) -> None:
        """A call failed and is tried again."""
        if isinstance(error, UnreachableError) and not self.is_on:
            self.is_on = True
            _LOGGER.warning("no node can be reached; trying again", extra={"reason": str(error)})

    def end(self) -> None:
        if self.is_on:
            self.is_on = False
            _LOGGER.info("a node can be reached again")
