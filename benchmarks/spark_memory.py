"""What Spark takes of the machine's memory: the JVM, which is driver and executor here, and its Python workers."""

import os
import threading
from types import TracebackType

import psutil

from benchmarks.spark_measured import MeasuredMemory

PAUSE_S = 0.2


class Watch:
    """Looks now and then while something runs; may be entered again."""

    def __init__(self) -> None:
        self._jvm_bytes = self._worker_bytes = self._workers = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._over.set()
        self._thread.join()

    def found(self) -> MeasuredMemory:
        return MeasuredMemory(jvm_bytes=self._jvm_bytes, worker_bytes=self._worker_bytes, workers=self._workers)

    def _look(self) -> None:
        while not self._over.wait(PAUSE_S):
            workers = 0
            for process in psutil.Process(os.getpid()).children(recursive=True):
                try:
                    resident, is_jvm = process.memory_info().rss, process.name() == "java"
                except psutil.Error:  # it has ended
                    continue
                if is_jvm:
                    self._jvm_bytes = max(self._jvm_bytes, resident)
                else:
                    workers += 1
                    self._worker_bytes = max(self._worker_bytes, resident)
            self._workers = max(self._workers, workers)
