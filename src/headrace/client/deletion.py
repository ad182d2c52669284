"""What is said when of several things that were to be deleted some were not."""

from collections.abc import Sequence

from headrace.model.errors import HeadraceError


def refused(refusals: Sequence[HeadraceError], deleted: Sequence[str]) -> HeadraceError:
    """Every refusal, and what is gone nevertheless: that cannot be undone. The class is that of the first."""
    text = "; ".join(map(str, refusals))
    if deleted:
        text += f" (deleted: {', '.join(deleted)})"
    return type(refusals[0])(text)
