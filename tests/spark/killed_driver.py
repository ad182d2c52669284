"""A Spark driver in a process of its own, killed as a crash would: its JVM and its Python workers with it.

The driver is a module of the tests, started with arguments. At a placed point it creates a file and waits to be killed.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.support.node import environment
from tests.support.wait import wait_until

from headrace.spark import session

LONG = bool(os.environ.get("HEADRACE_LONG"))
ANY = ""  # a point in a batch: any moment

DEADLINE_S = 240.0
_EXIT_DEADLINE_S = 30.0


class Driver:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    def wait_until(self, condition: Callable[[], bool], *, what: str) -> None:
        """Wait for what the driver does. One that ended before is a failure."""
        wait_until(
            lambda: condition() or self.process.poll() is not None,
            deadline_s=DEADLINE_S,
            what=lambda: f"{what}; it said:\n{self.said()}",
        )
        assert condition(), f"the driver ended before: {what}; it said:\n{self.said()}"

    def wait_end(self) -> None:
        assert self.process.wait(DEADLINE_S) == 0, self.said()

    def kill(self) -> None:
        """SIGKILL to all of it, the JVM's workers included: they must not finish what the driver began."""
        family = [psutil.Process(self.process.pid)]
        family += family[0].children(recursive=True)
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(_EXIT_DEADLINE_S)
        psutil.wait_procs(family, timeout=_EXIT_DEADLINE_S)

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-10_000:]


@contextmanager
def driving(
    module: str,
    arguments: Sequence[object],
    *,
    log: Path,
    variables: Mapping[str, str] | None = None,
    is_leader: bool = False,
) -> Iterator[Driver]:
    """Start a driver; whatever happens, nothing of it is left. As a leader it has a process group of its own."""
    command = [sys.executable, "-m", module, *(str(argument) for argument in arguments)]
    root = Path(__file__).parents[2]
    # The tests are found here; what they test is found where this process found it.
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            cwd=root,
            env=environment({}) | {"PYTHONPATH": path} | dict(variables or {}),
            start_new_session=is_leader,
        )
    driver = Driver(process, log)
    try:
        yield driver
    finally:
        if process.poll() is None:
            driver.kill()


def quick_session(name: str) -> SparkSession:
    """For drivers: a session whose JVM does not live long enough to be worth compiling for."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return session(name, master="local[2]", config={"spark.driver.extraJavaOptions": options})


def stop_here(marker: Path) -> None:
    """For drivers: say that the placed point is reached, and stay there until killed."""
    marker.touch()
    threading.Event().wait()


def kill_by_table(module: str, arguments: Sequence[object], point: str, table: Path, *, place: Path) -> None:
    """Start a driver that writes to a Delta table, and kill it around a commit or at any moment of its work."""
    # The stopping sink imports this module.
    from tests.spark.stopping_sink import stopping_at

    marker = place / "reached"
    marker.unlink(missing_ok=True)
    with driving(module, arguments, log=place / "log", variables=stopping_at(point, marker)) as driver:
        if point == ANY:
            version = version_of(table) + random.randint(1, 2)
            driver.wait_until(lambda: version_of(table) >= version, what="the driver adds batches")
            threading.Event().wait(random.uniform(0, 0.5))  # somewhere in the next batch
        else:
            driver.wait_until(marker.exists, what=f"the driver stops {point} a commit")
        driver.kill()


def version_of(table: Path) -> int:
    return DeltaTable(table).version() if DeltaTable.is_deltatable(str(table)) else 0
