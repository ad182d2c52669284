"""What happened in a run, as one hash: two runs of a seed are the same if their hashes are."""

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

_KEPT_LINES = 200


class Trace:
    """Every event of a run, in order, with its virtual time."""

    def __init__(self, now_s: Callable[[], float], *, keep_all: bool = False) -> None:
        self.now_s = now_s
        self.count = 0
        self.lines: deque[str] = deque(maxlen=None if keep_all else _KEPT_LINES)
        self._hash = blake2b(digest_size=16)

    def note(self, kind: str, *values: object) -> None:
        line = f"{self.now_s():.6f} {kind} {' '.join(map(str, values))}\n"
        self._hash.update(line.encode())
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        return self._hash.hexdigest()
