"""Why a project failed, in one sentence: with file and line where a file of the project raised, else with the flow."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.model.errors import HeadraceError
from headrace.spark.errors import explain
from headrace.spark.pipeline.errors import PipelineFailedError
from headrace.spark.project.place import Project

# How the server tells of a flow that cannot be, or that failed while it ran: its name, and what the error was.
_FLOW_FAILURE = re.compile(r"^(?:Failed to resolve flow: '(.+)'\.|Flow (\S+) .*FAILED\.)\s*Error: (.+)", re.DOTALL)
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+;?\s*$")


def flow_failure(event: str) -> str | None:
    """The sentence in what the server says about a flow, if that is a failure and the flow's own."""
    found = _FLOW_FAILURE.match(event)
    if found is None:
        return None
    return f"{short_name(found[1] or found[2])}: {plain(explain(Exception(found[3])))}"


def short_name(flow: str) -> str:
    return flow.removeprefix("spark_catalog.").removeprefix("default.")


def plain(sentence: str) -> str:
    """Without the class and the code that Spark puts around it."""
    return _CLASS.sub("", _STATE.sub("", sentence)).strip()


@contextmanager
def project_failure(project: Project) -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        sentence = _sentence(error)
        place = _place(error, project.directory)
        raise PipelineFailedError(f"{place}: {sentence}" if place else sentence) from error


def _sentence(error: Exception) -> str:
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        return plain(explain(error))
    # The project's own mistake: an error's kind says more than its text does (KeyError: 'x').
    return f"{type(error).__name__}: {error}"


def _place(error: Exception, directory: Path) -> str | None:
    """The innermost line of the project's own files."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(directory):
        return f"{Path(error.filename).relative_to(directory)}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(directory):
            return f"{Path(frame.filename).relative_to(directory)}, line {frame.lineno}"
    return None
