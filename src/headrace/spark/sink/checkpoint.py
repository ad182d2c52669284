"""What a query's checkpoint says of how far it is.

Spark tells a writer the number of its batch when it is to commit it, and not when it is made. Whether there was a batch
before decides what an address at which nobody answers means: at the beginning it is wrong, and later a node restarts.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

_COMMITS = "commits"  # where Spark keeps a file for each batch that is done


def is_first_batch(checkpoint: str | None) -> bool:
    """Whether no batch of a query is done. False where nobody knows: no place is named, or no directory is there."""
    if checkpoint is None:
        return False
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return False
    place = Path(unquote(parts.path) if parts.scheme else checkpoint)
    return place.is_dir() and not any((place / _COMMITS).glob("[0-9]*"))
