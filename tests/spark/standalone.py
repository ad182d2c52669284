"""A Spark cluster on loopback, from PySpark's own files: a master, two workers, and a Connect server on request.

Every process is started here and ended here by its id, executors included, whatever happens in a test.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark
from tests.support.node import environment, free_port
from tests.support.wait import wait_until

from headrace.spark.java import java_home

_LOOPBACK = "127.0.0.1"
_START_DEADLINE_S = 90.0
_EXIT_DEADLINE_S = 20.0
_EXECUTOR = "CoarseGrainedExecutorBackend"
# They live for seconds: what a compiler would win, it takes for itself.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _environment() -> dict[str, str]:
    return environment({}) | {
        "JAVA_HOME": str(java_home(os.environ)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_DAEMON_MEMORY": "512m",  # a Connect server is a driver, which takes no less
        "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": _SHORT_LIVED,
        # Another port, always the same one, for what nobody uses.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }


class Cluster:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self._page_port = free_port()

    @property
    def master(self) -> str:
        return f"spark://{_LOOPBACK}:{self._port}"

    def start(self, worker_count: int) -> None:
        self._launch(
            "org.apache.spark.deploy.master.Master",
            *("--host", _LOOPBACK, "--port", str(self._port), "--webui-port", str(self._page_port)),
            log="master",
        )
        # A worker that finds no master tries again only after many seconds.
        self._wait(lambda: accepts(self._port), "the master listens")
        for number in range(worker_count):
            worker = self._launch(
                "org.apache.spark.deploy.worker.Worker",
                *("--host", _LOOPBACK, "--port", str(free_port()), "--webui-port", str(free_port())),
                *("--cores", "1", "--memory", "600m", "--work-dir", str(self.place / f"work-{number}")),
                self.master,
                log=f"worker-{number}",
            )
            self._workers.append(worker)
        self._wait(lambda: self.state().get("aliveworkers") == worker_count, "the workers are there")

    def start_connect_server(self, master: str | None = None) -> str:
        """A Connect server whose executors are the cluster's, unless another master is named; gives its address."""
        port = free_port()
        settings = {
            "spark.connect.grpc.binding.address": _LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": _LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        self._launch(
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", master or self.master, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *arguments,
            "spark-internal",
            log="connect",
        )
        self._wait(lambda: accepts(port), "the Connect server listens")
        return f"sc://{_LOOPBACK}:{port}"

    def state(self) -> dict[str, Any]:
        """What the master says of itself; nothing while it does not answer, or answers with its page.

        It listens first, and only then learns, one after the other, what it is to answer.
        """
        address = f"http://{_LOOPBACK}:{self._page_port}/json/"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except (OSError, json.JSONDecodeError):
            return {}

    def executors(self) -> list[psutil.Process]:
        found = []
        for worker in self._workers:
            for child in psutil.Process(worker.pid).children():
                with suppress(psutil.NoSuchProcess):
                    if any(_EXECUTOR in part for part in child.cmdline()):
                        found.append(child)
        return found

    def stop(self) -> None:
        """Applications first, then workers, then the master; what does not end is killed, with all that it started."""
        family: list[psutil.Process] = []
        for process in reversed(self._processes):
            with suppress(psutil.NoSuchProcess):
                started = psutil.Process(process.pid)
                family += [started, *started.children(recursive=True)]
                started.terminate()
        _, alive = psutil.wait_procs(family, timeout=_EXIT_DEADLINE_S)
        for member in alive:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        for process in self._processes:
            process.wait(_EXIT_DEADLINE_S)

    def said(self) -> str:
        logs = sorted(self.place.glob("*.log")) + sorted(self.place.glob("work-*/*/*/stderr"))
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-4_000:]}" for log in logs)

    def _launch(self, *arguments: str, log: str) -> "subprocess.Popen[bytes]":
        own = _environment()
        command = [str(Path(own["SPARK_HOME"]) / "bin" / "spark-class"), *arguments]
        with (self.place / f"{log}.log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.place, env=own)
        self._processes.append(process)
        return process

    def _wait(self, condition: Any, what: str) -> None:
        wait_until(condition, deadline_s=_START_DEADLINE_S, what=lambda: f"{what}; they said:\n{self.said()}")


def accepts(port: int) -> bool:
    try:
        socket.create_connection((_LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def standalone(place: Path, *, worker_count: int = 2) -> Iterator[Cluster]:
    place.mkdir()
    cluster = Cluster(place)
    try:
        cluster.start(worker_count)
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def connect_server(place: Path) -> Iterator[str]:
    """A Connect server that is its own executor, in one JVM; gives its address."""
    place.mkdir()
    alone = Cluster(place)
    try:
        yield alone.start_connect_server("local[2]")
    finally:
        alone.stop()
