"""The load of one transactional producer: so many messages, commit, and again; or none of that, as an idempotent one.

Run as `python -m benchmarks.transaction_load ADDRESS TOPIC --each 100 --seconds 2`; it prints what it measured as JSON.
With `--each 0` there are no transactions: the producer is idempotent, and what it gets done is the ceiling.
"""

import argparse
import subprocess
import sys
import time

import msgspec
from confluent_kafka import Producer

from benchmarks.process import clean_environment

DEADLINE_S = 300.0
CALL_S = 30.0
LINGER_MS = 5


class MeasuredTransactions(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    transactions: int
    seconds: float
    cpu_share: float  # of the client's own core

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


def measure(address: str, topic: str, *, each: int, size_bytes: int, seconds: float) -> MeasuredTransactions:
    """Start the load and wait for it."""
    command = [sys.executable, "-m", "benchmarks.transaction_load", address, topic]
    command += ["--each", str(each), "--size", str(size_bytes), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"the producer failed: {done.stderr[-2000:].decode(errors='replace')}")
    return msgspec.json.decode(done.stdout, type=MeasuredTransactions)


class _Load:
    def __init__(self, address: str, topic: str, each: int, body: bytes) -> None:
        self._topic = topic
        self._each = each
        self._body = body
        self.transactions = 0
        config: dict[str, object] = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": 1_000_000,
            "log_level": 3,
        }
        if each:
            config["transactional.id"] = f"bench-{each}"
        self._producer = Producer(config)
        if each:
            self._producer.init_transactions(CALL_S)

    def run(self, seconds: float) -> int:
        """Messages that are stored, and committed where there are transactions."""
        end_s = time.perf_counter() + seconds
        count = 0
        while time.perf_counter() < end_s:
            if self._each:
                self._producer.begin_transaction()
                self._produce(self._each)
                self._producer.commit_transaction(CALL_S)
                self.transactions += 1
                count += self._each
            else:
                self._produce(1000)
                count += 1000
        if self._producer.flush(CALL_S):
            raise RuntimeError("some messages were not stored in time")
        return count

    def _produce(self, count: int) -> None:
        produce, poll, topic, body = self._producer.produce, self._producer.poll, self._topic, self._body
        for _ in range(count):
            while True:
                try:
                    produce(topic, body)
                    break
                except BufferError:
                    poll(0.01)
        poll(0)


def run(address: str, topic: str, each: int, size_bytes: int, seconds: float) -> MeasuredTransactions:
    load = _Load(address, topic, each, b"x" * size_bytes)
    load.run(min(0.5, seconds))
    load.transactions = 0
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    count = load.run(seconds)
    taken_s = time.perf_counter() - begun_s
    return MeasuredTransactions(
        messages=count,
        transactions=load.transactions,
        seconds=taken_s,
        cpu_share=(time.process_time() - cpu_s) / taken_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transaction_load")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    found = run(given.address, given.topic, given.each, given.size, given.seconds)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
