"""What the Spark benchmark's process says, and what it was told to do."""

import msgspec

STREAM_BATCH_ROWS = 250_000
CODEC = "snappy"  # of files that are compared with each other


class MeasuredLatency(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float


class MeasuredMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was resident at once."""

    jvm_bytes: int
    worker_bytes: int  # of the largest Python worker
    workers: int


class MeasuredSpark(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    seconds: dict[str, list[float]]  # of each way, turn by turn
    latencies: dict[str, MeasuredLatency]  # by sink
    memory: dict[str, MeasuredMemory]  # of each way
    start_s: float
