"""What belongs to a client and cannot leave its process."""

from typing import NoReturn


class ProcessBound:
    """Refuses to be pickled or copied, in words that help."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to one client in one process, so it is not pickled or copied; make a "
            "client in each process, and give it what is in the message: its body, its id"
        )
