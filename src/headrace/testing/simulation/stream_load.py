"""Producers of a topic, plain, idempotent and transactional, and consumers that read along what is committed."""

from collections.abc import Iterator, Mapping

from headrace.client.aborted import Aborted
from headrace.client.fetcher import decode_messages
from headrace.client.producer import ACKS_ALL, Producer, store_batch
from headrace.client.raw_fetch import Position, RawFetched, RawFetcher
from headrace.client.router import Router
from headrace.client.transactional import TransactionalProducer
from headrace.client.values import Message, Outgoing, TopicPartition
from headrace.model.batch import HEADER_SIZE, read_header, read_prefix
from headrace.model.errors import HeadraceError, OffsetOutOfRangeError
from headrace.testing.history import Read, Topic, Transaction
from headrace.testing.simulation.client import LoadClient, World
from headrace.wire.kafka.records import Record, encode_batch

PARTITIONS = 2
PLAIN = Topic(name="plain", idempotent=False)
IDEMPOTENT = Topic(name="idempotent", idempotent=True)
TRANSACTIONAL = Topic(name="transactional", idempotent=True)
TOPICS = (PLAIN, IDEMPOTENT, TRANSACTIONAL)

_SIZES = (10, 10, 100, 1000, 6000)  # below and above what goes through the journal
_TRANSACTION_MS = 10_000
_WITHIN_MS = 50.0  # between two records of a transaction
_FETCH_BYTES = 256 * 1024


class StreamClient(LoadClient):
    """A client of one topic."""

    def __init__(self, name: str, world: World, number: int, topic: Topic) -> None:
        super().__init__(name, world, number)
        self.topic = topic
        self.number = 0

    def next_body(self) -> tuple[str, bytes]:
        """A record's name, and its value: the name and padding."""
        name = f"{self.name}-{self.number}"
        self.number += 1
        return name, f"{name} ".encode() + self.chance.randbytes(self.chance.choice(_SIZES))

    def choose_place(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.chance.randrange(PARTITIONS))


class PlainSender(StreamClient):
    """Sends each record once, without an identity: what is unclear stays unclear."""

    async def run(self) -> None:
        router = self.router()
        while self.is_sending:
            at = self.choose_place()
            body, value = self.next_body()
            batch = encode_batch([Record(self.clock.wall_ms(), None, value)])
            call = self.history.send(
                self.topic.name, body, sender=self.name, number=self.number, partition=at.partition
            )
            try:
                call.offset = await store_batch(router, at, batch, acks=ACKS_ALL, deadline=router.deadline())
            except HeadraceError as error:
                self.told(body, error.code)
                router.forget([at.topic])
            else:
                self.history.answer(call, "yes")
                self.told(body, call.offset)
            await self.rest()
        await router.close()


class IdempotentSender(StreamClient):
    """Retries until it has an answer, or gives its identity up; the next one is another sender."""

    async def run(self) -> None:
        router = self.router()
        producer = Producer(router, self.rand)
        identity_count = 0
        while self.is_sending:
            at = self.choose_place()
            body, value = self.next_body()
            call = self.history.send(
                self.topic.name,
                body,
                sender=f"{self.name}.{identity_count}",
                number=self.number,
                partition=at.partition,
            )
            try:
                [produced] = await producer.send(
                    self.topic.name, [Outgoing(value, partition=at.partition)], compression="none", acks=ACKS_ALL
                )
            except HeadraceError as error:
                self.told(body, error.code)
                identity_count += 1
            else:
                call.offset = None if produced.base_offset < 0 else produced.base_offset
                self.history.answer(call, "yes")
                self.told(body, call.offset)
            await self.rest()
        await router.close()


class TransactionalSender(StreamClient):
    """Sends some records in each transaction, commits most and aborts some."""

    async def run(self) -> None:
        router = self.router()
        while self.is_sending:
            producer = TransactionalProducer(router, self.name, timeout_ms=_TRANSACTION_MS)
            try:
                await producer.begin()
                while self.is_sending:
                    await self._one_transaction(producer)
                    await self.rest()
            except HeadraceError as error:
                self.told("begins anew", error.code)
                await self.rest()
        await router.close()

    async def _one_transaction(self, producer: TransactionalProducer) -> None:
        transaction = self.history.begin(f"{self.name}-{self.number}")
        # It can only count once its commit was asked for.
        self.history.answer(transaction, "no")
        for _ in range(self.chance.randint(1, 5)):
            at = self.choose_place()
            body, value = self.next_body()
            self.history.send(
                self.topic.name,
                body,
                sender=self.name,
                number=self.number,
                partition=at.partition,
                transaction=transaction.id,
            )
            await producer.join([at])
            await producer.produce(at, encode_batch([Record(self.clock.wall_ms(), None, value)]))
            await self.clock.sleep(_WITHIN_MS)
        if self.chance.random() < 0.2:
            await producer.abort()
        else:
            await self._commit(producer, transaction)
        self.told(transaction.id, transaction.outcome)

    async def _commit(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        self.history.answer(transaction, "maybe")
        await producer.commit()
        self.history.answer(transaction, "yes")


class Follower(StreamClient):
    """Reads along what is committed. What it has read must not change, and a watermark must not go back."""

    async def run(self) -> None:
        router = self.router()
        reader = CommittedReader(router, self.topic.name)
        while self.is_working:
            try:
                found = await reader.read(wait_ms=1000)
            except HeadraceError as error:
                self.told("could not read", error.code)
            else:
                self.history.along.extend(found)
                for trouble in reader.trouble:
                    self.history.fail(f"{self.name}: {trouble}")
                reader.trouble.clear()
            await self.rest()
        await router.close()


class CommittedReader:
    """Positions in every partition of a topic, and what lies between them and the last stable offset."""

    def __init__(self, router: Router, topic: str) -> None:
        self._raw = RawFetcher(router)
        self._positions = {TopicPartition(topic, partition): 0 for partition in range(PARTITIONS)}
        self._watermarks: dict[TopicPartition, int] = {}
        self.trouble: list[str] = []
        self.is_at_end = False

    async def read(self, *, wait_ms: int) -> list[Read]:
        places = {at: Position(offset, _FETCH_BYTES) for at, offset in self._positions.items()}
        answers = await self._raw.fetch(places, committed=True, wait_ms=wait_ms, bytes_max=_FETCH_BYTES)
        found: list[Read] = []
        for fetched in answers:
            self._judge(fetched)
            found += _committed(fetched, self._positions[fetched.at])
            self._positions[fetched.at] = fetched.next_offset
        ends = {fetched.at: fetched.readable_end for fetched in answers}
        self.is_at_end = len(ends) == PARTITIONS and all(self._positions[at] >= end for at, end in ends.items())
        return found

    def _judge(self, fetched: RawFetched) -> None:
        before = self._watermarks.get(fetched.at, 0)
        if isinstance(fetched.error, OffsetOutOfRangeError):
            self.trouble.append(f"{fetched.at} lost its end: {fetched.error}")
        elif fetched.high_watermark < before:
            self.trouble.append(f"the watermark of {fetched.at} went back from {before} to {fetched.high_watermark}")
        self._watermarks[fetched.at] = fetched.high_watermark


def _committed(fetched: RawFetched, position: int) -> Iterator[Read]:
    aborted = Aborted(fetched.aborted)
    start, size_total = 0, len(fetched.records)
    while size_total - start >= HEADER_SIZE:
        _, size = read_prefix(fetched.records, start)
        if start + size > size_total:
            return
        header = read_header(fetched.records, start)
        if not aborted.has(header):
            batch = memoryview(fetched.records)[start : start + size]
            messages, _ = decode_messages(fetched.at, position, batch)
            yield from map(_read, messages)
        start += size


def _read(message: Message) -> Read:
    assert message.value is not None
    body = bytes(message.value).split(b" ", 1)[0].decode()
    return Read(topic=message.topic, partition=message.partition, offset=message.offset, body=body)


async def read_all(router: Router, topic: str) -> list[Read]:
    """Everything that is committed, read by a new consumer."""
    reader = CommittedReader(router, topic)
    found: list[Read] = []
    while not reader.is_at_end:
        found += await reader.read(wait_ms=100)
    return found


SEND_BY: Mapping[Topic, type[StreamClient]] = {
    PLAIN: PlainSender,
    IDEMPOTENT: IdempotentSender,
    TRANSACTIONAL: TransactionalSender,
}
