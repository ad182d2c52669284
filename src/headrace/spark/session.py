"""One function for a SparkSession with everything set that headrace needs.

    from headrace import spark

    session = spark.session("orders")
    session.read.format("headrace").option("subscribe", "orders").load()

Any SparkSession reads and writes headrace. This one comes with a Java, runs its Python workers with the Python that it
was called from, listens on loopback only while all of it is on this machine, counts time in UTC and says on the screen
what went wrong, without Java's stack.
"""

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.model.extra import how_to_install
from headrace.spark.errors import MissingExtraError
from headrace.spark.java import java_home
from headrace.spark.jvm import start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

# How many cores the source plans for. It plans in processes that know nothing of the session but the environment.
CORES_VARIABLE = "SPARK_HEADRACE_CORES"

_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = {_LOOPBACK, "localhost", "::1"}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# By how the query was written.
_REFUSAL_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_LOG_FILE = Path(__file__).with_name("log4j2.properties")


def session(
    app_name: str = "headrace",
    *,
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session in this process (the default), on a cluster (`master`) or on a Connect server (`remote`).

    `config` is Spark's own configuration and comes before whatever is set here.
    """
    builder = _spark_session().builder.appName(app_name)
    if remote is not None and not remote.startswith("local"):
        settings = {**_everywhere(), **(config or {})}
        builder = builder.remote(remote)
    else:
        master = master or remote or LOCAL
        _prepare_environment(master)
        settings = _settings(master, config or {})
        start_jvm({"spark.master": master, "spark.app.name": app_name, **settings})
        builder = builder.master(master) if remote is None else builder.remote(remote)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # A Connect server of this process has been started with all of the settings. PySpark gives them to its client
        # as well, and warns of each that cannot be changed any more.
        warnings.filterwarnings("ignore", "Failed to set spark\\.", UserWarning)
        started = builder.getOrCreate()
    log_refusals(False)
    return started


def log_refusals(wanted: bool = True) -> None:
    """Whether PySpark prints what it raises about a query as well: a line of JSON with Python's and Java's stack."""
    for name in _REFUSAL_LOGGERS:
        logging.getLogger(name).disabled = not wanted


def _spark_session() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtraError(f"Spark is not installed; {how_to_install('spark')}") from None
    return SparkSession


def _prepare_environment(master: str) -> None:
    """What Spark takes from the environment of the process that starts it."""
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ[CORES_VARIABLE] = str(_cores(master))
    else:
        # Other machines may have their Python elsewhere; whoever knows has said it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ[CORES_VARIABLE] = "0"  # unknown
    if _on_this_machine(master):
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK


def _settings(master: str, own: Mapping[str, str]) -> dict[str, str]:
    settings = {
        **_everywhere(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _on_this_machine(master):
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    if is_local(master):
        # All rows of the source come from Python workers: over loopback TCP that takes a seventh more of the machine.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        # On a cluster, what workers print stays with the executors.
        settings["spark.python.daemon.module"] = "headrace.spark.daemon"
        # Spark's default is 200, and each is a task in every micro-batch that aggregates or joins.
        settings["spark.sql.shuffle.partitions"] = str(max(2, _cores(master)))
    settings |= own
    options = f"-Dlog4j2.configurationFile={_LOG_FILE.as_uri()} {own.get(_JAVA_OPTIONS, '')}"
    return settings | {_JAVA_OPTIONS: options.strip()}


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        # The source takes filters only where its option asks for it; without this it could not even then.
        "spark.sql.python.filterPushdown.enabled": "true",
        # A Connect server would send Java's stack along with every error.
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master == "local" or master.startswith("local[")


def _on_this_machine(master: str) -> bool:
    if is_local(master) or master.startswith("local-cluster["):
        return True
    try:
        return urlsplit(master).hostname in _LOOPBACK_NAMES
    except ValueError:  # several masters, or something that Spark itself will refuse
        return False


def _cores(master: str) -> int:
    """The N of local[N] or local[N,retries]; all cores for local[*]."""
    count = master.removeprefix("local").strip("[]").split(",")[0]
    if count.isdigit():
        return int(count)
    return (os.cpu_count() or 1) if count == "*" else 1
