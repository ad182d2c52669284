"""A project on disk: its spec, and the directory for what it must find again in the next run.

`state/` beside the spec has the catalogue, the tables' files and a lock. The spec's `storage` is where Spark keeps how
far each table is; written without a scheme it means a directory beside the spec, so that a project can be moved.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.host.process import DirectoryLock
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.errors import RunInProgressError
from headrace.spark.project.template import SPEC_NAME

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec

SPEC_NAMES = (SPEC_NAME, "spark-pipeline.yaml")
SERVERS_KEY = "headrace.servers"

# PySpark begins its sentences with a class of its own, in brackets.
_CLASS = re.compile(r"^\[[\w.]+\]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    spec_path: Path
    spec: "PipelineSpec"

    @property
    def directory(self) -> Path:
        return self.spec_path.parent

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def identity(self) -> dict[str, str]:
        """What makes two runs the same work."""
        return {"project": str(self.directory)}

    def storage(self, override: str | None) -> str:
        given = override or self.spec.storage
        return given if urlsplit(given).scheme else (self.directory / given).resolve().as_uri()

    def configuration(self, servers: str | None) -> dict[str, str]:
        """The spec's settings, with the address that the command gave."""
        return {**self.spec.configuration, **({SERVERS_KEY: servers} if servers else {})}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time, whatever its id is: the catalogue has one user."""
        self.state.mkdir(exist_ok=True)
        lock = DirectoryLock(str(self.state / "lock"))
        try:
            if not lock.try_lock():
                raise RunInProgressError(f"{self.directory} is being run by another process; wait for it, or stop it")
            yield
        finally:
            lock.release()


def open_project(directory: Path) -> Project:
    """Read the spec of a project, or say what is wrong with it."""
    found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
    if not found:
        raise OptionError(
            f"{directory} has no {SPEC_NAME}, so it is no project; `headrace pipeline init {directory}` makes one"
        )
    if len(found) > 1:
        raise OptionError(f"{directory} has both {' and '.join(SPEC_NAMES)}; keep one of them")
    path = found[0].resolve()
    return Project(spec_path=path, spec=_read_spec(path))


def _read_spec(path: Path) -> "PipelineSpec":
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec
    from yaml import YAMLError

    try:
        return load_pipeline_spec(path)
    except PySparkException as error:
        reason = _CLASS.sub("", error.getMessage() or str(error)).strip()
    except (YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
    except (TypeError, KeyError, AttributeError):
        # PySpark takes what it expects out of the file without looking first.
        reason = "it has not the form of a spec: a name, a storage, a configuration, and libraries with globs"
    raise OptionError(f"{path} cannot be used: {reason}")
