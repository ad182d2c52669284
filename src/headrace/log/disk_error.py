"""A failed call of the disk, as the caller is told of it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.host.ballast import is_no_room
from headrace.model.errors import (
    DiskFailedError,
    DiskFullError,
    HeadraceError,
    OverloadedError,
    PartitionOfflineError,
)

_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


def is_no_descriptor(error: OSError) -> bool:
    """Whether a file could not be opened for lack of descriptors alone: it can be tried again later."""
    return error.errno in _NO_DESCRIPTOR


def refusal(error: OSError, path: str, done: str) -> HeadraceError:
    """What to answer where a call failed and nothing was stored. `done`: what could not be done, as a participle."""
    what = f"{path} could not be {done}: {error.strerror or error}"
    if is_no_room(error):
        return DiskFullError(f"{what}; nothing was stored. Free disk space or add a disk, then retry")
    if is_no_descriptor(error):
        return OverloadedError(f"{what}; raise the limit of open files (ulimit -n), or retry later")
    return DiskFailedError(f"{what}; nothing was stored. Check the disk and its mount, then retry")


@contextmanager
def reading(directory: str) -> Iterator[None]:
    """Tell an error of the disk as the reason why a partition cannot be opened."""
    try:
        yield
    except OSError as error:
        raise PartitionOfflineError(
            f"{directory} could not be read: {error.strerror or error}; check the disk and its mount, then restart the "
            "node"
        ) from error
