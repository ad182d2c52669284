"""What the Spark room refuses or fails to do, and how to find its one sentence in what Spark makes of it.

Source and sink run in Python processes that the JVM starts. What they raise comes back as text: Python's stack inside
a Java exception inside a PySpark exception. Each error here therefore says all that it has to say in its message's
first line, and `explain` finds that line again.
"""

from headrace.model.errors import HeadraceError, InvalidConfigError


class MissingExtraError(HeadraceError):
    """PySpark, Arrow or Java is not installed."""

    code = "missing_extra"


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


class DataLossError(HeadraceError):
    """Messages that were to be read are gone: retention removed them, or their topic was deleted or made anew."""

    code = "data_loss"
