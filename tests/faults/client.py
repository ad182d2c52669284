"""A client of a mixed load: a thread that goes on until it is told to stop, whatever happens to the node."""

import threading

from tests.faults.history import History

DEADLINE_S = 90.0  # for what has to be answered once the node is up again


class LoadClient:
    def __init__(self, name: str, history: History, stop: threading.Event) -> None:
        self.name = name
        self.history = history
        self.stop = stop
        self._thread = threading.Thread(target=self._guarded, name=name)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(2 * DEADLINE_S)
        if self._thread.is_alive():
            self.history.fail(f"{self.name} did not come to its end")

    def run(self) -> None:
        """Go on until `stop` is set. An exception is trouble, which the checker reports."""
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - the checker reports it
            self.history.fail(f"{self.name}: {error!r}")
