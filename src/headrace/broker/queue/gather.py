"""One promise for what several partitions do: kept when the last of them has said its part."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from headrace.broker.promise import Promise

T = TypeVar("T")


class Gather(Generic[T]):
    """Outcomes by place. Each is set once; the promise is kept when none is missing."""

    __slots__ = ("_missing", "_outcomes", "promise")

    def __init__(self, count: int) -> None:
        self.promise: Promise[list[T]] = Promise()
        self._missing = count
        self._outcomes: list[T | None] = [None] * count
        if not count:
            self._finish()

    def set(self, place: int, outcome: T) -> None:
        self._outcomes[place] = outcome
        self._missing -= 1
        if not self._missing:
            self._finish()

    def set_all(self, places: Sequence[int], outcomes: list[T]) -> None:
        if len(outcomes) == len(self._outcomes):  # all of them at once, as most are
            self._missing = 0
            self.promise.keep(outcomes)
            return
        if isinstance(places, range):
            self._outcomes[places.start : places.stop] = outcomes
        else:
            for place, outcome in zip(places, outcomes, strict=True):
                self._outcomes[place] = outcome
        self._missing -= len(outcomes)
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        self.promise.keep(self._outcomes)  # type: ignore[arg-type]  # none is missing
