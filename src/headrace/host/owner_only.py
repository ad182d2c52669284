"""Keeping a data directory to its owner: other users of the machine can neither read nor change what is in it."""

import logging
import os
import stat

_logger = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_files_private() -> None:
    """Have every file and directory that this process makes from now on accessible to its owner only.

    Not every file is opened by this program: SQLite makes its own, with the modes that it likes.
    """
    os.umask(_OTHERS)


def take_from_others(directory: str) -> None:
    """Tighten a directory, and say in the log what others could access, or still can."""
    changed_count, left = tighten(directory)
    if changed_count:
        _logger.warning(
            "the data directory was accessible to other users; now only its owner can read and write it",
            extra={"directory": directory, "changed": changed_count},
        )
    if left:
        _logger.warning(
            "other users can access the node's data, and this process cannot change that; as the owner of these "
            "files, or as root, take them away from others (chmod -R go= DIRECTORY)",
            extra={"directory": directory, "count": len(left), "first": left[0]},
        )


def tighten(directory: str) -> tuple[int, list[str]]:
    """Take a directory and all that is in it away from other users.

    Returns how many entries were changed, and the paths that others can still access: this process does not own them,
    or they are links to a place outside, which is left as it is.
    """
    changed_count = 0
    left: list[str] = []
    top = os.path.realpath(directory)
    for path, directories, files, handle in os.fwalk(top, onerror=lambda error: left.append(str(error.filename))):
        try:
            changed_count += _tighten_open(handle)
        except OSError:
            left.append(path)
        for name in [*directories, *files]:
            try:
                changed_count += _tighten_file(name, handle)
            except FileNotFoundError:
                continue
            except OSError:
                left.append(f"{path}/{name}")
    return changed_count, left


def _tighten_file(name: str, directory: int) -> bool:
    """Directories are left to the walk. A link is never followed: it could make any file of the machine this one's."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        if os.stat(name, dir_fd=directory).st_mode & _OTHERS:
            raise PermissionError(f"{name} leads outside")
        return False
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & _OTHERS:
        return False
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return _tighten_open(handle)
    finally:
        os.close(handle)


def _tighten_open(handle: int) -> bool:
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    if not mode & _OTHERS:
        return False
    os.fchmod(handle, mode & ~_OTHERS)
    return True
