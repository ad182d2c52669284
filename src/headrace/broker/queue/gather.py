"""One promise for what several partitions do: kept when the last of them has said its part."""

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

    def set(self, at: int, outcome: T) -> None:
        self._outcomes[at] = outcome
        self._missing -= 1
        if not self._missing:
            self._finish()

    def set_run(self, start: int, outcomes: list[T]) -> None:
        """Consecutive places, as when one partition has it all."""
        self._outcomes[start : start + len(outcomes)] = outcomes
        self._missing -= len(outcomes)
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        self.promise.keep(self._outcomes)  # type: ignore[arg-type]  # none is missing
