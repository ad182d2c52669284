"""What a handler raised, as the failure of one attempt."""

import asyncio


def failure_of(raised: BaseException) -> Exception:
    """A handler that exits (`sys.exit` in some library) has failed with its message, and does not end the worker."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    if isinstance(raised, asyncio.CancelledError):
        # Of something that it waited for: nobody has interrupted the handler itself.
        failure = RuntimeError("something that the handler waited for was cancelled")
    else:
        # No future can hold these, and the loop would end with some of them.
        failure = RuntimeError(f"the handler ended in {raised!r}")
    failure.__cause__ = raised
    return failure
