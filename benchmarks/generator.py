"""Runs `headrace bench` as a process of its own, so that the client's work is neither the node's nor ours."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from confluent_kafka.admin import AdminClient

from benchmarks.process import HEADRACE, Server, clean_environment
from headrace.cli.load import Measured, Percentiles, Target, create_topics

DEADLINE_S = 600.0
DELETE_DEADLINE_S = 60.0


class MeasuredEndToEnd(msgspec.Struct, frozen=True, kw_only=True):
    messages_total: int
    received: int
    acknowledged_ms: Percentiles
    latency_ms: Percentiles


def produce(server: str, topic: str, *options: str) -> Measured:
    return msgspec.json.decode(_run("produce", server, topic, options), type=Measured)


def consume(server: str, topic: str, *options: str) -> Measured:
    return msgspec.json.decode(_run("consume", server, topic, options), type=Measured)


def latency(server: str, topic: str, *options: str) -> MeasuredEndToEnd:
    return msgspec.json.decode(_run("latency", server, topic, options), type=MeasuredEndToEnd)


def command(kind: str, server: str, topic: str, options: Sequence[str]) -> list[str]:
    return [*HEADRACE, "bench", kind, topic, "--server", server, "--json", *options]


def _run(kind: str, server: str, topic: str, options: Sequence[str]) -> bytes:
    done = subprocess.run(
        command(kind, server, topic, options), capture_output=True, env=clean_environment(), timeout=DEADLINE_S
    )
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stderr[-4000:])
        raise RuntimeError(f"headrace bench {kind} {topic} {' '.join(options)} failed")
    return done.stdout


@contextmanager
def new_topic(node: Server, name: str, durability: str, *, partitions: int = 1, topics: int = 1) -> Iterator[None]:
    """A topic, or several as `headrace bench --topics` names them, for the length of a load."""
    target = Target(server=node.address, topic=name, topics=topics)
    create_topics(target, partitions=partitions, settings={"headrace.durability": durability})
    try:
        yield
    finally:
        client = AdminClient({"bootstrap.servers": node.address, "log_level": 3})  # named: its futures die with it
        for deleted in client.delete_topics(target.names(), operation_timeout=DELETE_DEADLINE_S).values():
            deleted.result(DELETE_DEADLINE_S)
