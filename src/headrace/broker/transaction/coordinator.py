"""The coordinator of transactions: one call for each thing that a transactional producer asks.

What is written before what is answered:

    a participant joins     the entry that says so, before the answer, and so before anything of it is written there
    a partition joins       by being sent to: the producer's batches wait for the entry, then are appended as they came
    a transaction ends      the decision; then every participant is told (`ending.py`); then the answer, or after
                            `end_wait_ms`, since the decision cannot change any more
    a producer begins       an open transaction of the last one is aborted and its end awaited; then the new epoch

A transaction whose time is over is aborted and its producer fenced (row 30). After a restart, what was decided is told
again, and what is open gets its time-out anew.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.broker.queue.tasks import Tasks
from headrace.broker.transaction.config import TransactionsConfig
from headrace.broker.transaction.ending import Ender, HeldLeases
from headrace.broker.transaction.groups import Caller, Groups, OffsetCommit, Outcomes
from headrace.broker.transaction.shard import Shard
from headrace.broker.transaction.shards import Shards
from headrace.folds.transaction.fold import Producer
from headrace.folds.transaction.transaction import PREPARED, State, Transaction
from headrace.host.clock import Clock, past_ms, stamp_ms
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.batch import HEADER_SIZE, read_header
from headrace.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorUnavailableError,
    HeadraceError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    OverloadedError,
    ProducerMappingError,
    UnknownTransactionError,
)
from headrace.model.ids import PartitionId

_logger = logging.getLogger(__name__)

_ID_LENGTH_MAX = 1000
_EXPIRY_INTERVAL_MS = 60_000

_Waiting = tuple[memoryview, Promise[Appended]]


class Coordinator:
    def __init__(
        self,
        *,
        broker: Broker,
        logs: LogStore,
        clock: Clock,
        threads: Threads,
        config: TransactionsConfig,
        groups: Groups | None = None,
        queues: HeldLeases | None = None,
    ) -> None:
        self.config = config
        self._broker = broker
        self._clock = clock
        self._groups = groups
        self._tasks = Tasks()
        self._shards = Shards(broker=broker, logs=logs, clock=clock, threads=threads, config=config)
        # What producers sent to partitions whose joining is being written.
        self._joining: dict[tuple[Producer, PartitionId], list[_Waiting]] = {}
        self._ender = Ender(broker=broker, groups=groups, queues=queues, clock=clock, spawn=self._tasks.spawn)
        self.counts = self._ender.counts

    # Start and stop.

    async def start(self) -> None:
        """Bring every transaction up to date, and go on with what was decided."""
        await self._shards.start()
        for shard in self._shards:
            for transaction in shard.fold:
                if transaction.state in PREPARED:
                    self._ender.finish(shard, transaction.id)
        self._tasks.spawn(self._look_after())

    async def wait_failed(self) -> None:
        await self._tasks.wait_failed()

    async def stop(self) -> None:
        await self._tasks.stop()

    def abandon(self) -> None:
        """Stop without a word, as a killed process does."""
        self._tasks.cancel()

    # A producer begins.

    async def begin_producer(
        self, id: str, *, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """The producer id and epoch of a new instance of a transactional producer. Older ones are fenced."""
        if not 0 < len(id) <= _ID_LENGTH_MAX:
            raise InvalidRequestError(f"a transactional id has 1 to {_ID_LENGTH_MAX} characters, not {len(id)}")
        if not 0 < timeout_ms <= self.config.timeout_ms_max:
            raise InvalidTransactionTimeoutError(
                f"a transaction's time-out is 1 to {self.config.timeout_ms_max} ms here, not {timeout_ms}; "
                "lower transaction.timeout.ms, or raise transactions.timeout_ms_max"
            )
        shard = await self._shards.find(id)
        spare = await self._broker.allocate_producer_id()
        if expected is not None:
            shard.fold.check_expected(id, expected)
        known = shard.fold.get(id)
        while known is not None and (known.state is State.ONGOING or known.state in PREPARED):
            if known.state is State.ONGOING:
                shard.store(shard.fold.fence(id, now_ms=stamp_ms(self._clock)))
                expected = None  # it was checked, and is over
            elif expected is not None and expected == (known.last_producer_id, known.last_epoch):
                expected = None
            if not await self._within(self._ender.finish(shard, id), self.config.end_wait_ms):
                raise ConcurrentTransactionsError(f"the last transaction of {id} is still being ended; retry")
            known = shard.fold.get(id)
        now_ms = stamp_ms(self._clock)
        if known is None:
            if len(shard.fold) >= self.config.ids_max:
                raise OverloadedError(
                    f"{len(shard.fold)} transactional ids are known, as many as transactions.ids_max allows; "
                    "use fewer, or raise it"
                )
            begun = shard.fold.create(id, producer_id=spare, timeout_ms=timeout_ms, now_ms=now_ms)
        else:
            begun = shard.fold.renew(id, expected=expected, new_producer_id=spare, timeout_ms=timeout_ms, now_ms=now_ms)
        await self._stored(shard, begun)
        return begun.producer_id, begun.epoch

    # A transaction goes on.

    async def add(
        self,
        producer: Producer,
        *,
        partitions: Sequence[PartitionId] = (),
        acknowledgements: Sequence[PartitionId] = (),
        groups: Sequence[str] = (),
    ) -> None:
        """Let participants join; durable when this returns."""
        shard = self._known(producer.transactional_id)
        joined = shard.fold.add(
            producer,
            partitions=partitions,
            acknowledgements=acknowledgements,
            groups=groups,
            now_ms=stamp_ms(self._clock),
        )
        if joined is None:
            await self._committed(shard)
        else:
            await self._stored(shard, joined)

    def verify(
        self,
        producer: Producer,
        *,
        partition: PartitionId | None = None,
        acknowledgement: PartitionId | None = None,
        group: str | None = None,
    ) -> None:
        """Refuse what does not belong to the producer's open transaction. Good for this turn of the loop."""
        self._known(producer.transactional_id).fold.verify(
            producer, partition=partition, acknowledgement=acknowledgement, group=group
        )

    def produce(
        self, id: str, topic: str | UUID, index: int, records: memoryview, *, joins: bool = False
    ) -> Promise[Appended]:
        """Store what a transactional producer sent. `joins`: the partition joins by being sent to (KIP-890)."""
        partition = self._broker.partition(topic, index)
        if len(records) < HEADER_SIZE:
            return partition.append(records)
        header = read_header(records)
        if not header.is_transactional or partition.has_transaction(header.producer_id, header.producer_epoch):
            return partition.append(records)
        producer = Producer(id, header.producer_id, header.producer_epoch)
        if joins:
            waiting = self._joining.get((producer, partition.id))
            transaction = self._known(id).fold.get(id)
            if waiting is None and (transaction is None or partition.id not in transaction.partitions):
                waiting = self._joining[producer, partition.id] = []
                self._tasks.spawn(self._join_and_append(producer, partition, waiting))
            if waiting is not None:
                promise: Promise[Appended] = Promise()
                waiting.append((records, promise))
                return promise
        self.verify(producer, partition=partition.id)
        return partition.append(records, is_verified=True)

    async def _join_and_append(self, producer: Producer, partition: Partition, waiting: list[_Waiting]) -> None:
        """Append what the producer sent while its partition joined, in the order in which it arrived."""
        try:
            await self.add(producer, partitions=[partition.id])
            self.verify(producer, partition=partition.id)
        except HeadraceError as error:
            _fail(waiting, error)
        except BaseException:
            _fail(waiting, CoordinatorUnavailableError("the node is stopping; the call may have been carried out"))
            raise
        else:
            for records, promise in waiting:
                partition.append(records, is_verified=True).then(partial(_pass_on, promise))
        finally:
            del self._joining[producer, partition.id]

    async def commit_offsets(
        self, producer: Producer, caller: Caller, offsets: Sequence[OffsetCommit], *, joins: bool = False
    ) -> Outcomes:
        """Commit a group's offsets with the transaction. `joins`: the group joins by this (KIP-890)."""
        assert self._groups is not None, "this node has no groups"
        if joins:
            await self.add(producer, groups=[caller.group_id])
        self.verify(producer, group=caller.group_id)
        held = self._ender.hold(producer.transactional_id)
        try:
            return await self._groups.commit_transactional(
                caller, offsets, producer_id=producer.producer_id, producer_epoch=producer.epoch
            )
        finally:
            held.set_result(None)

    # A transaction ends.

    async def end(self, producer: Producer, *, is_commit: bool, is_bumped: bool = False) -> tuple[int, int]:
        """Commit or abort; may be repeated. Returns the producer id and epoch with which the producer goes on."""
        id = producer.transactional_id
        shard = self._known(id)
        known = shard.fold.get(id)
        spare = -1
        if is_bumped and known is not None and known.is_exhausted:
            spare = await self._broker.allocate_producer_id()
        ending = shard.fold.end(
            producer, is_commit=is_commit, is_bumped=is_bumped, new_producer_id=spare, now_ms=stamp_ms(self._clock)
        )
        if ending.is_new:
            await self._stored(shard, ending.transaction)
        else:
            await self._committed(shard)
        decided = shard.fold.get(id)
        if decided is not None and decided.state in PREPARED:
            await self._within(self._ender.finish(shard, id), self.config.end_wait_ms)
        return ending.transaction.following

    # What may be asked.

    def transactions(self) -> Iterator[Transaction]:
        for shard in self._shards:
            yield from shard.fold

    def describe(self, id: str) -> Transaction:
        shard = self._shards.peek(id)
        transaction = None if shard is None else shard.fold.get(id)
        if transaction is None:
            raise UnknownTransactionError(f"nothing is known of the transactional id {id}")
        return transaction

    # Behind.

    async def _look_after(self) -> None:
        expiry_ms = 0
        while True:
            await self._clock.sleep(self.config.check_interval_ms)
            now_ms = self._clock.monotonic_ms()
            is_expiry_due = now_ms >= expiry_ms
            if is_expiry_due:
                expiry_ms = now_ms + min(_EXPIRY_INTERVAL_MS, self.config.expiry_ms)
            for shard in self._shards:
                try:
                    shard.check_open()
                except HeadraceError:
                    continue
                self._abort_overdue(shard)
                if is_expiry_due:
                    for id in shard.fold.idle(now_ms=past_ms(self._clock), after_ms=self.config.expiry_ms):
                        shard.forget(id)

    def _abort_overdue(self, shard: Shard) -> None:
        for id in shard.overdue():
            _logger.warning("a transaction's time is over and it is aborted", extra={"transactional_id": id})
            self.counts.timed_out += 1
            shard.store(shard.fold.fence(id, now_ms=stamp_ms(self._clock)))
            self._ender.finish(shard, id)

    def _known(self, id: str) -> Shard:
        shard = self._shards.peek(id)
        if shard is None:
            raise ProducerMappingError(f"nothing is known of the transactional id {id}; begin the producer anew")
        return shard

    async def _stored(self, shard: Shard, transaction: Transaction) -> None:
        try:
            await shard.store(transaction)
        except CoordinatorUnavailableError:
            raise
        except HeadraceError as error:
            raise CoordinatorUnavailableError(f"what was decided may not be on disk yet: {error}; retry") from error

    async def _committed(self, shard: Shard) -> None:
        """An answer that is given a second time promises what the first one does."""
        await shard.committed()

    async def _within(self, task: "asyncio.Task[None]", wait_ms: int) -> bool:
        """Wait for a task as long as that takes, and no longer than so; it goes on in any case."""
        ready = asyncio.Event()
        task.add_done_callback(lambda _: ready.set())
        timer = self._clock.call_later(max(wait_ms, 1), ready.set)
        try:
            await ready.wait()
        finally:
            timer.cancel()
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        return task.done()


def _fail(waiting: list[_Waiting], error: HeadraceError) -> None:
    for _, promise in waiting:
        promise.fail(error)


def _pass_on(promise: Promise[Appended], appended: Promise[Appended]) -> None:
    error = appended.exception()
    if error is None:
        promise.keep(appended.result())
    else:
        promise.fail(error)
