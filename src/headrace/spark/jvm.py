"""The JVM of a session of this process, out of reach of the signals that ask the driver to end.

Ctrl-C and `timeout` signal the whole process group. The driver is the one that answers: it lets the current batch
finish, and needs its JVM and the JVM's Python workers for that. So the JVM gets a session of its own, in which its
workers are too. It ends when its standard input does, which is when the driver ends, however that happens.

A supervisor may signal every process, whatever its group. Then the JVM ignores SIGTERM, so that the driver can still
tell how the run ended. PySpark's workers do not: the batch fails, and is done again by the next run.
"""

import os
import sys
from collections.abc import Callable, Mapping
from socketserver import BaseServer
from typing import Any


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless this process has one or uses one that it was started by, as in spark-submit."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    _let_it_end_quietly()
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def _let_it_end_quietly() -> None:
    """Print no stack where the JVM ends while PySpark's server of accumulators reads from it: the run tells its end."""
    from pyspark import accumulators

    for kind in list(vars(accumulators).values()):
        if isinstance(kind, type) and issubclass(kind, BaseServer):
            kind.handle_error = _quiet(kind.handle_error)  # type: ignore[method-assign]


def _quiet(usual: Callable[..., None]) -> Callable[..., None]:
    def handle_error(self: BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            usual(self, request, client_address)

    return handle_error
