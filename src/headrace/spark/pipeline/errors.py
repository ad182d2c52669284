"""What can be wrong with a run of a pipeline. Bad options are `headrace.spark.errors.OptionError`."""

from headrace.model.errors import HeadraceError


class RunInProgressError(HeadraceError):
    """Another process works on this checkpoint. Stop it, or wait."""

    code = "run_in_progress"


class UnknownRunError(HeadraceError):
    """No run has this id."""

    code = "unknown_run"


class OtherRunError(HeadraceError):
    """The id belongs to a run of another pipeline, or over other data; its checkpoint does not fit."""

    code = "other_run"


class StoppedEarlyError(KeyboardInterrupt):
    """Somebody asked the run to end while its session was being started: nothing was begun, so nothing is left.

    It is an interrupt, because it is raised by a signal in the midst of whatever starts a session.
    """


class PipelineFailedError(HeadraceError):
    """A pipeline ended with an error. Its message is the one sentence that matters."""

    code = "pipeline_failed"
