"""Whole Metadata answers, kept while the catalog and the nodes stay as they are."""

from collections.abc import Sequence

from headrace.cluster.catalog import NodeAddress
from headrace.model.batch import Buffer
from headrace.wire.kafka.primitives import INT32

Asked = tuple[int, bytes]  # version and body of the request

# A request with thousands of names is not asked often enough to be worth its key.
ASKED_BYTES_MAX = 4096
ANSWERS_BYTES_MAX = 16 * 1024 * 1024


class MetadataCache:
    def __init__(self, answers_max: int) -> None:
        self._answers_max = answers_max
        self._revision = -1
        self._nodes: list[NodeAddress] = []
        self._answers: dict[Asked, memoryview] = {}
        self._bytes = 0

    def get(self, asked: Asked, revision: int, nodes: Sequence[NodeAddress]) -> memoryview | None:
        if revision != self._revision or list(nodes) != self._nodes:
            return None
        return self._answers.get(asked)

    def put(self, asked: Asked, revision: int, nodes: Sequence[NodeAddress], answer: bytes) -> None:
        if revision != self._revision or list(nodes) != self._nodes:
            self._answers.clear()
            self._bytes = 0
            self._revision = revision
            self._nodes = list(nodes)
        if len(asked[1]) > ASKED_BYTES_MAX or len(answer) > ANSWERS_BYTES_MAX:
            return
        while self._answers and (
            len(self._answers) >= self._answers_max or self._bytes + len(answer) > ANSWERS_BYTES_MAX
        ):
            oldest = next(iter(self._answers))
            self._bytes -= len(self._answers.pop(oldest))
        self._answers[asked] = memoryview(answer)
        self._bytes += len(answer)

    @staticmethod
    def frame(kept: memoryview, correlation_id: int) -> list[Buffer]:
        """The kept answer under another correlation id: length, id, and everything behind them unchanged."""
        return [bytes(kept[:4]) + INT32.pack(correlation_id), kept[8:]]
