"""The consuming load: read from the beginning as fast as the client delivers."""

import time  # noqa: TID251 - what is measured here is the machine's own clock, and no test simulates it
from typing import Any

from headrace.cli.load import CHUNK_MESSAGES, METADATA_TIMEOUT_S, Measured, Stall, Target, client_library, places


def consumer(target: Target, *, at_end: bool) -> Any:
    """A consumer with every partition of the target assigned, from its beginning or from its end."""
    library = client_library()
    client = library.Consumer(
        {
            "bootstrap.servers": target.server,
            "client.id": "headrace-bench",
            "group.id": "headrace-bench",
            "enable.auto.commit": False,
            # By default librdkafka looks away for a second whenever it has 100,000 messages waiting.
            "fetch.queue.backoff.ms": 1,
        }
    )
    assigned = []
    for topic, number in places(client, target):
        partition = library.TopicPartition(topic, number)
        low, high = client.get_watermark_offsets(partition, timeout=METADATA_TIMEOUT_S)
        # Whole numbers, not "the end": a message sent after this function returns is read, whenever the fetch begins.
        assigned.append(library.TopicPartition(topic, number, high if at_end else low))
    client.assign(assigned)
    return client


def consume(target: Target, *, messages: int | None, seconds: float | None, warmup_s: float = 0.0) -> Measured:
    """Read from the beginning, as fast as it goes, so many messages or so long."""
    client = consumer(target, at_end=False)
    count = size = total = total_bytes = 0
    started = time.monotonic_ns()
    cpu_before_s = time.process_time()
    measured_from: int | None = None  # the first message after the warm-up starts the clock
    stalls = Stall()
    try:
        while True:
            batch = client.consume(num_messages=CHUNK_MESSAGES, timeout=0.1)
            now = time.monotonic_ns()
            stalls.check(total)
            received = sum(map(len, batch))
            total += len(batch)
            total_bytes += received
            if measured_from is not None:
                count += len(batch)
                size += received
            elif batch and now - started >= warmup_s * 1e9:
                measured_from = now
            since = started if measured_from is None else measured_from
            if messages is not None and total >= messages:
                break
            if seconds is not None and now - since >= seconds * 1e9:
                break
    finally:
        client.close()
    return Measured(
        messages=count,
        bytes=size,
        seconds=(now - since) / 1e9,
        messages_total=total,
        bytes_total=total_bytes,
        cpu_s=time.process_time() - cpu_before_s,
    )
