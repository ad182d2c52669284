"""Whatever is sent again, and whenever: an answer that names an offset names the place of what was sent.

A producer sends batches, several before an answer comes, and some of them again: in the same turn, while the first copy
is on its way to the disk, or long after. The node may be killed in between.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.model.errors import DuplicateSequenceError, HeadraceError
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads

from .node import Node, fetch, produced, records_of, run

PRODUCERS = 2
FLIGHT_MAX = 5  # batches that a Kafka client has on their way


@dataclass
class Batch:
    """One batch as its producer keeps it until it is acknowledged."""

    sequence: int
    values: tuple[bytes, ...]


class Producer:
    """Numbers what it sends, sends its oldest unacknowledged batches again as a client does, and keeps the answers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        self.sequence = 0
        self.sent: list[Batch] = []
        self.answers: list[tuple[tuple[Batch, ...], Promise[Appended]]] = []

    def make(self, count: int) -> Batch:
        values = tuple(b"%d-%d-%d" % (self.number, self.epoch, self.sequence + at) for at in range(count))
        batch = Batch(self.sequence, values)
        self.sequence += count
        self.sent.append(batch)
        return batch

    def encode(self, batch: Batch) -> bytes:
        return bytes(produced(*batch.values, producer_id=self.number, epoch=self.epoch, sequence=batch.sequence))

    def send(self, node: Node, batches: tuple[Batch, ...]) -> None:
        records = memoryview(bytearray(b"".join(map(self.encode, batches))))
        self.answers.append((batches, node.broker.partition("t", 0).append(records)))

    def begin_epoch(self) -> None:
        self.epoch, self.sequence, self.sent = self.epoch + 1, 0, []


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "again", "again", "pair", "turn", "turn", "sync", "epoch", "kill"]),
        st.integers(0, PRODUCERS - 1),
        st.integers(1, 3),  # records, calls, or how many of the last batches are sent again
    ),
    max_size=60,
)
topics: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip"},
        {"headrace_durability": "memory"},
    ]
)


@settings(max_examples=150)
@given(steps, topics)
def test_an_answer_names_the_place_of_what_was_sent(
    script: list[tuple[str, int, int]], overrides: dict[str, Any]
) -> None:
    async def main() -> None:
        held = HeldThreads()
        node = Node(sync_threads=held)
        await released(node.start(), held)
        await released(node.make(**overrides), held)
        producers = [Producer(number) for number in range(PRODUCERS)]
        for kind, number, count in script:
            await step(node, held, producers[number], kind, count)
        await settle()
        while held.release():
            await settle()
        await check(node, producers)
        node.abandon()

    run(main())


async def released(work: Awaitable[object], held: HeldThreads) -> None:
    """Await something that needs the threads."""
    task = asyncio.ensure_future(work)
    while not task.done():
        held.release()
        await settle()
    task.result()


async def step(node: Node, held: HeldThreads, producer: Producer, kind: str, count: int) -> None:
    if kind == "send":
        producer.send(node, (producer.make(count),))
    elif kind == "again":
        # A retry begins at some batch of those in flight and goes on from there, each in a request of its own.
        for batch in producer.sent[-FLIGHT_MAX:][-count:]:
            producer.send(node, (batch,))
    elif kind == "pair":
        # Two batches in one request, the first of which may be a retry.
        first = producer.sent[-1:] if count == 1 else [producer.make(1)]
        producer.send(node, (*first, producer.make(2)))
    elif kind == "turn":
        await settle()
    elif kind == "sync":
        await settle()
        held.release(count)
        await settle()
    elif kind == "epoch":
        await settle()
        producer.begin_epoch()
    else:
        held._held.clear()
        await released(node.kill(), held)


async def check(node: Node, producers: list[Producer]) -> None:
    places: dict[bytes, list[int]] = {}
    offset = 0
    while True:
        (result,) = await node.fetched(fetch(offset))
        records = records_of(result)
        if not records:
            break
        for record in records:
            places.setdefault(record.value or b"", []).append(record.offset)
        offset = records[-1].offset + 1
    assert all(len(offsets) == 1 for offsets in places.values()), "a retry was stored twice"
    for producer in producers:
        for batches, answer in producer.answers:
            if not answer.done():
                continue  # it was killed
            values = [value for batch in batches for value in batch.values]
            error = answer.exception()
            if error is not None:
                assert isinstance(error, HeadraceError)
                assert not isinstance(error, DuplicateSequenceError) or places.keys() >= set(values)
                continue
            found = [places[value][0] for value in values]
            base = answer.result().base_offset
            together = found == list(range(found[0], found[0] + len(found)))
            assert base == (found[0] if together else -1)
