"""A Connect session with the JVM of this process, which declarative pipelines need, on a port of its own.

PySpark can start one by itself (`remote("local[*]")`), always on port 15002, so that two projects on one machine would
collide. Here the ordinary session is started with the Connect plugin on any free port of the loopback address, is
asked which one it got, and is connected to. Who connects has to know a token that both sides take from the
environment: on the command line of the JVM everybody could read it.

The catalogue is Hive's with an embedded Derby, whose jars come with PySpark. The one that Spark keeps in memory would
have forgotten the tables by the second run, and a pipeline whose tables exist on disk only cannot run.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from headrace.host.rand import Rand, SystemRand
from headrace.spark.project.place import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 -- the variable's name
_MODE_VARIABLE = "SPARK_CONNECT_MODE_ENABLED"
_TOKEN_BYTES = 32
_RETRIES_MAX = 4  # about four seconds
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def local_settings(project: Project) -> dict[str, str]:
    """What the session of this process must be started with; the project's own settings come before."""
    state = project.state
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (state / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={state / 'catalogue'};create=true",
        # Derby's log would lie in whatever directory the command was given in.
        "spark.driver.extraJavaOptions": f'"-Dderby.stream.error.file={state / "catalogue.log"}"',
        **{key: value for key, value in project.spec.configuration.items() if key.startswith("spark.")},
    }


def prepare_token(rand: Rand | None = None) -> None:
    """Before the JVM starts, which takes it from the environment as the client does."""
    os.environ.setdefault(TOKEN_VARIABLE, (rand or SystemRand()).bytes(_TOKEN_BYTES).hex())


@contextmanager
def connected(session: "SparkSession") -> "Iterator[SparkSession]":
    """A Connect session over an ordinary one of this process that was started with `local_settings`."""
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    service = getattr(getattr(cast(Any, session)._jvm, _SERVICE), "MODULE$")
    # The client trusts a token to an unencrypted connection only where the host's name is this.
    address = f"sc://localhost:{service.localPort()}"
    before = os.environ.get(_MODE_VARIABLE)
    # Functions such as F.col make a Connect column where this is set, and one of the JVM's where it is not.
    os.environ[_MODE_VARIABLE] = "1"
    opened: Any = ConnectSession.builder.remote(address).create()
    # PySpark's own patience is ten minutes, for servers that somebody starts again; nobody starts this one again.
    opened.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES_MAX)])
    try:
        with warnings.catch_warnings():
            # Said of a server that is gone because the run was asked to end.
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
            try:
                yield opened
            finally:
                opened.stop()
    finally:
        if before is None:
            del os.environ[_MODE_VARIABLE]
        else:
            os.environ[_MODE_VARIABLE] = before
