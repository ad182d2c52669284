"""The messages of the Spark benchmarks, 1 KB each: documents, which compress, and random bytes, which do not.

Parquet decompresses documents while it reads them, and copies random bytes: what it is compared with has the same to do
for both. So a ratio from documents alone flatters whatever does not read Parquet.
"""

import random
from collections.abc import Callable, Iterator

import cramjam
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SIZE_BYTES = 1024
CUSTOMERS = 10_000
_POOL_BYTES = 1 << 20
_WORDS = b"pending shipped returned cancelled express standard gift invoice card transfer north south east west".split()
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
FLUSH_DEADLINE_S = 120.0


def messages(count: int, *, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values: half of a value are words that come again and again, half is as good as random."""
    rand = random.Random(seed)
    noise = bytes(rand.choices(_LETTERS, k=_POOL_BYTES))
    text = b" ".join(rand.choices(_WORDS, k=_POOL_BYTES // 8))
    for number in range(count):
        customer = b"customer-%d" % rand.randrange(CUSTOMERS)
        at, words_at = rand.randrange(_POOL_BYTES - SIZE_BYTES), rand.randrange(len(text) - SIZE_BYTES)
        head = b'{"order":%d,"customer":"%s","note":"' % (number, customer)
        left = SIZE_BYTES - len(head) - 2
        half = left // 2
        yield customer, head + text[words_at : words_at + half] + noise[at : at + left - half] + b'"}'


def random_messages(count: int, *, seed: int = 2) -> Iterator[tuple[bytes, bytes]]:
    """No two values are alike, and nothing in them repeats."""
    rand = random.Random(seed)
    for number in range(count):
        yield b"customer-%d" % number, rand.randbytes(SIZE_BYTES)


DOCUMENTS, RANDOM = "documents", "random"
KINDS: dict[str, Callable[[int], Iterator[tuple[bytes, bytes]]]] = {DOCUMENTS: messages, RANDOM: random_messages}


def topic_of(topic: str, kind: str) -> str:
    return topic if kind == DOCUMENTS else f"{topic}-{kind}"


def compressed_share(kind: str) -> dict[str, float]:
    """How much of the data is left by the codecs that Parquet is written with."""
    data = b"".join(value for _, value in KINDS[kind](1_000))
    packed = {"snappy": cramjam.snappy.compress_raw(data), "zstd": cramjam.zstd.compress(data)}
    return {name: len(found) / len(data) for name, found in packed.items()}


def fill(server: str, topic: str, count: int, *, partitions: int, kind: str = DOCUMENTS) -> None:
    """A topic with so many messages, sent by librdkafka as it comes."""
    make_topic(server, topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": server, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    for key, value in KINDS[kind](count):
        while True:
            try:
                producer.produce(topic, value, key=key)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(FLUSH_DEADLINE_S):
        raise RuntimeError(f"the node did not take {count} messages within {FLUSH_DEADLINE_S:.0f} s")


def make_topic(server: str, topic: str, *, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server, "log_level": 3})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        try:
            made.result(30)
        except KafkaException as error:
            raise RuntimeError(f"{topic} could not be made: {error}") from error
