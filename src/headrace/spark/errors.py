"""What the Spark room refuses or fails to do, and how to find its one sentence in what Spark makes of it.

Source and sink run in Python processes that the JVM starts. What they raise comes back as text: Python's stack inside
a Java exception inside a PySpark exception. Every error of headrace says all that it has to say in one sentence. Where
it leaves a worker process it goes without Python's stack (`without_stack`), so that what the user sees is Spark's name
for the failure and then the sentence; and `explain` gets the sentence alone.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.model.errors import HeadraceError, InvalidConfigError, InvalidRequestError
from headrace.spark.abandoned import silence_hang_ups


class MissingExtraError(HeadraceError):
    """PySpark, Arrow or Java is not installed."""

    code = "missing_extra"


class UnsupportedSparkError(HeadraceError):
    """Spark does something otherwise than the versions of it that headrace is tested with."""

    code = "unsupported_spark"


class OptionError(InvalidConfigError):
    """An option of a source, sink or pipeline that cannot be, with what would be valid."""

    code = "invalid_option"


class SchemaDriftError(HeadraceError):
    """Rows have other columns than the table that they are written to."""

    code = "schema_drift"


class LakeError(HeadraceError):
    """A Delta table, or the disk under it, cannot be read or written."""

    code = "lake"


class LakeConflictError(LakeError):
    """Another writer changed the table again and again while a batch was to be added. Nothing of the batch was."""

    code = "lake_conflict"
    retriable = True


class ColumnError(InvalidRequestError):
    """Rows that cannot be messages: a column is missing, or has a type or a value that no message can have."""

    code = "invalid_column"


class StagingError(HeadraceError):
    """What tasks have encoded cannot be kept for the driver, or is not there any more."""

    code = "staging"


class TakenOverError(HeadraceError):
    """Another run of the same query or job writes now, and this one must not."""

    code = "taken_over"


class DataLossError(HeadraceError):
    """Messages that were to be read are gone: retention removed them, or their topic was deleted or made anew."""

    code = "data_loss"


# PySpark looks at it when an exception ends a worker process.
_HIDE_STACK = "SPARK_HIDE_TRACEBACK"

# An exception's last line as Python prints it: the class with its module, and the message.
_OWN = re.compile(r"^(?:.*[\s:])?headrace\.[\w.]+Error: (.+)$", re.MULTILINE)
_ANY = re.compile(r"^[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)
_TAIL = re.compile(r"\s*(?:SQLSTATE: \w+)?\s*(?:; line \d+ pos \d+|\(line \d+, pos \d+\))?[;\s]*$")
_STATE = re.compile(r"(?:\s*SQLSTATE: \w+)+\s*$")


@contextmanager
def without_stack() -> Iterator[None]:
    """What headrace refuses in here is told without Python's stack: the user did nothing in those lines.

    For code that runs in a worker process of PySpark, which ends with the exception. Any other exception is a bug, and
    its stack is wanted.
    """
    silence_hang_ups()
    try:
        yield
    except HeadraceError:
        os.environ[_HIDE_STACK] = "1"
        raise


def sentence_of(exception: BaseException) -> str:
    """What Spark says against a condition or an expression, without its error class, state, position and plan."""
    line = str(exception).strip().splitlines()[0]
    said = line.partition("] ")[2] if line.startswith("[") else line
    return _TAIL.sub("", said).strip().rstrip(".")


def explain(exception: BaseException) -> str:
    """The one sentence in an exception that Spark raised: headrace's, if one is in it, or else the innermost."""
    text = str(exception)
    if isinstance(exception, HeadraceError):
        return text
    found = _OWN.findall(text) or _ANY.findall(text)
    if not found:
        found = [line for line in text.splitlines() if line.strip()][:1] or [type(exception).__name__]
    return _STATE.sub("", found[-1]).strip()
