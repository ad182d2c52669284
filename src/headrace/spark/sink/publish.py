"""What the driver does: everything that the tasks have staged becomes visible at once, and only once.

One transaction has all batches, and with them, as an offset that a group of the sink's own commits, the number of what
was written. In this order:

1. begin     takes over the sink's transactional id. A transaction that an earlier run left open is aborted, one that it
             had decided is finished, and whoever still writes under the id is refused from now on.
2. look      the group says up to which version this sink has published. Nobody else changes that after 1. If this
             version is among them, it was published by a run that did not live to tell, and nothing is to be done.
3. write     the batches, and the group's offset.
4. commit    both count, or neither.

A run that dies anywhere in it leaves either nothing that counts, or a version that the next run finds by 1 and 2.

Bytes are read from where the tasks staged them when their turn comes, so that a batch of any size takes a bounded part
of the driver's memory: one record batch for each partition that is written to, and not more than `_IN_FLIGHT_MAX`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.errors import UnknownOutcomeError
from headrace.client.stream import StreamClient
from headrace.client.transactional import TransactionalProducer
from headrace.client.values import TopicPartition
from headrace.model.errors import HeadraceError, InvalidTransactionTimeoutError, ProducerFencedError
from headrace.spark.errors import OptionError, TakenOverError
from headrace.spark.sink.option import SinkOptions
from headrace.spark.sink.staging import Piece, Staged, total_bytes
from headrace.spark.sink.target import connected

_IN_FLIGHT_MAX = 16

# How long a transaction may be open: as long as it takes at a megabyte a second, and a minute. A run that dies keeps
# readers waiting for so long at most, unless the next one comes sooner. More than the second is not asked for: nodes
# allow that much by default.
_TIMEOUT_MS = 60_000
_TIMEOUT_MS_MAX = 15 * 60_000
_BYTES_PER_MS = 1000

# Where a group's offset is kept: in the first partition of every topic that is written to.
_PLACE = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose writes these are: the name of their transactions, and of the group that remembers the last."""

    name: str
    version: int | None  # rises with each write; None: nothing is remembered, only the atomicity is wanted


def publish(options: SinkOptions, identity: Identity, staged: Sequence[Staged]) -> bool:
    """Returns whether anything was written: False for what had been written before, and for no rows at all."""
    if not any(one.pieces for one in staged):
        return False
    timeout_ms = options.transaction_timeout_ms or transaction_timeout_ms(total_bytes(staged))
    try:
        return asyncio.run(_publish(options, identity, staged, timeout_ms))
    except InvalidTransactionTimeoutError:
        raise OptionError(
            f"the node allows no transaction of {timeout_ms} ms; lower the option kafka.transaction.timeout.ms, "
            "or raise the node's transactions.timeout_ms_max"
        ) from None
    except ProducerFencedError as error:
        raise TakenOverError(
            f"another run writes as {identity.name} now, or this transaction took longer than {timeout_ms} ms; "
            f"nothing of it counts: {error}"
        ) from None


def transaction_timeout_ms(size: int) -> int:
    return min(_TIMEOUT_MS + size // _BYTES_PER_MS, _TIMEOUT_MS_MAX)


async def _publish(options: SinkOptions, identity: Identity, staged: Sequence[Staged], timeout_ms: int) -> bool:
    async with connected(options, waits=True) as client:
        producer = client.transactional(identity.name, timeout_ms=timeout_ms)
        await producer.begin()
        if identity.version is not None and await published_version(client, identity.name) >= identity.version:
            return False
        try:
            await _write(producer, identity, staged)
            await producer.commit()
        except UnknownOutcomeError:
            raise  # the next run will find out
        except BaseException:
            # Readers need not wait for the time-out. Where it cannot be said, the next run or the time-out ends it.
            with suppress(HeadraceError):
                await producer.abort()
            raise
    return True


async def published_version(client: StreamClient, name: str) -> int:
    """The last version that counts; -1 for none. A group's offset is where it goes on: one more."""
    return max((await client.groups.offsets(name, stable=True)).values(), default=0) - 1


async def _write(producer: TransactionalProducer, identity: Identity, staged: Sequence[Staged]) -> None:
    """Batches in the order of the tasks and of their rows, for each partition one after another."""
    places: dict[TopicPartition, list[tuple[Staged, Piece]]] = defaultdict(list)
    for one in staged:
        for piece in one.pieces:
            places[piece.at].append((one, piece))
    await producer.join(places)
    gate = asyncio.Semaphore(_IN_FLIGHT_MAX)

    async def send(at: TopicPartition) -> None:
        for one, piece in places[at]:
            async with gate:
                await producer.produce(at, one.read(piece))

    try:
        async with asyncio.TaskGroup() as tasks:
            for at in places:
                tasks.create_task(send(at))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the others were cancelled for it, or failed of the same
    if identity.version is not None:
        marks = {TopicPartition(topic, _PLACE): identity.version + 1 for topic in {at.topic for at in places}}
        await producer.commit_offsets(identity.name, marks)
