"""Planted failures of a simulated disk."""

from typing import Literal

Operation = Literal[
    "open",
    "size",
    "pwritev",
    "pread",
    "pread_cached",
    "fdatasync",
    "truncate",
    "close",
    "exists",
    "list_directory",
    "make_directory",
    "rename",
    "remove",
    "remove_tree",
    "sync_directory",
    "free_bytes",
]


class Fault:
    """A planted failure: the calls from the Nth on that match, as often as was asked."""

    __slots__ = ("error", "operation", "path_part", "skip", "times")

    def __init__(self, operation: Operation, *, skip: int, times: int, error: int, path_part: str) -> None:
        self.operation = operation
        self.skip = skip
        self.times = times
        self.error = error
        self.path_part = path_part

    def strikes(self, operation: Operation, path: str) -> bool:
        if operation != self.operation or self.path_part not in path or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True
