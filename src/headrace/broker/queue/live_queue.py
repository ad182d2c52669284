"""A queue at work: several partitions that look like one.

A receive takes what is visible in any partition, beginning with another one each time; with nothing visible it stands
in one line for all of them, first come first served, and whichever partition has something wakes the line. Nothing
polls. A partition that is offline is passed over, and whoever needs that one is told so (`partitions.py`).

The guarantee decides what stands between choosing a message and handing it out:

    at least once   nothing: the lease is written behind
    exactly once    the commit of the lease
    at most once    the commit of the acknowledgement, before which they are read (`at_most_once.py`)
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count

from headrace.broker.ledger import Told
from headrace.broker.queue.at_most_once import AtMostOnce
from headrace.broker.queue.attempts import Attempts
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.leases import Leases, setter
from headrace.broker.queue.loader import Found, Loader, Wanted
from headrace.broker.queue.message_size import MessageSize
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.broker.queue.receipt import Signer
from headrace.broker.queue.receive import LeaseReceive, PendingReceive, Taken
from headrace.broker.queue.repeats import Repeats
from headrace.broker.queue.room import Room
from headrace.broker.queue.sending import Sending
from headrace.folds.queue.fold import Lease
from headrace.host.clock import Clock
from headrace.model.errors import (
    HeadraceError,
    InvalidConfigError,
    InvalidRequestError,
    PartitionOfflineError,
    TooManyLeasedError,
    UnknownTopicError,
)
from headrace.model.message import Received, message_id
from headrace.model.queue import (
    ATTEMPTS_MAX,
    LEASE_MS_MAX,
    Guarantee,
    Queue,
    QueueConfig,
)
from headrace.wire.message import StoredMessage

# Of one answer, about: messages that have to be read are handed out up to this; those at hand are what the cache holds.
RECEIVE_BYTES = 16 * 1024 * 1024


class LiveQueue:
    def __init__(self, *, queue: Queue, signer: Signer, clock: Clock, loader: Loader) -> None:
        self.queue = queue
        self.partitions = QueuePartitions(queue.name)
        self.repeats = Repeats(self.partitions)
        self._signer = signer
        self._clock = clock
        self._loader = loader
        self._line: dict[PendingReceive, None] = {}
        self._numbers = count()
        self._is_serving = self._is_wanted = False
        self._ended: HeadraceError | None = None  # why nobody is served any more
        self._turn = 0
        self.room = Room(self, loader)
        self.sending = Sending(self, self.room, clock)
        self.leases = Leases(self, signer)
        self._at_most_once = AtMostOnce(
            loader,
            self._turns,
            bytes_max=lambda: RECEIVE_BYTES,
            deliver=self._deliver_committed,
            begin_again=self._begin_again,
        )
        self._attempts = Attempts()
        self._message_size = MessageSize(self.partitions)
        self.is_closed = False
        # Held by who changes the configuration, so that what one change was made of is what it replaces.
        self.changing = asyncio.Lock()

    # Receiving.

    def answer_bytes(self, count: int) -> int:
        return min(count * self._message_size.mean(), RECEIVE_BYTES)

    def receive(self, *, count_max: int, lease_ms: int | None, wait_ms: int, attempt_id: str | None) -> PendingReceive:
        lease_ms = self.queue.config.lease_ms if lease_ms is None else lease_ms
        receive = PendingReceive(count_max=count_max, lease_ms=lease_ms, attempt_id=attempt_id)
        self._number(receive, wait_ms)
        if not 0 <= lease_ms <= LEASE_MS_MAX:
            receive.fail(InvalidRequestError(f"a lease is 0 to {LEASE_MS_MAX} ms long, not {lease_ms}"))
        elif count_max < 1:
            receive.fail(InvalidRequestError(f"at least one message is received, not {count_max}"))
        elif attempt_id is None or not self._repeat(receive, attempt_id):
            if attempt_id is not None and self._line:
                self._supersede(attempt_id)
            self._begin(receive)
        return receive

    def acquire(
        self, *, count_max: int, partitions: frozenset[int] | None, wait_ms: int, lease_ms: int | None = None
    ) -> LeaseReceive:
        """Lease messages for a consumer that reads them itself, from these partitions or from any."""
        lease_ms = self.queue.config.lease_ms if lease_ms is None else lease_ms
        receive = LeaseReceive(count_max=count_max, lease_ms=lease_ms, attempt_id=None, partitions=partitions)
        self._number(receive, wait_ms)
        self._begin(receive)
        return receive

    def _number(self, receive: PendingReceive, wait_ms: int) -> None:
        receive.number = next(self._numbers)
        receive.until_ms = self._clock.monotonic_ms() + wait_ms

    def _begin(self, receive: PendingReceive) -> None:
        try:
            is_served = not self._line and self._hand_out(receive)
        except PartitionOfflineError as error:
            receive.fail(error)
            return
        if not is_served:
            wait_ms = receive.until_ms - self._clock.monotonic_ms()
            if wait_ms > 0:
                receive.line = self._line
                self._line[receive] = None
                receive.timer = self._clock.call_later(wait_ms, receive.time_out)
            else:
                receive.promise.keep([])

    def serve(self) -> None:
        """Something may be visible: serve the line.

        Serving may make something visible itself, where what was chosen is given up. Whoever is being served then
        stands in line still, so it is noted, and looked at afterwards.
        """
        self._is_wanted = True
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._is_wanted:
                self._is_wanted = False
                self._serve_line()
        finally:
            self._is_serving = False

    def _serve_line(self) -> None:
        passed: set[PendingReceive] = set()
        while self._line:
            receive = next((one for one in self._line if one not in passed), None)
            if receive is None:
                return
            try:
                if not self._hand_out(receive):
                    if receive.partitions is None:
                        return
                    passed.add(receive)  # what it waits for is elsewhere: nobody behind it has to
                    continue
            except HeadraceError as error:
                receive.fail(error)
                continue
            receive.leave()

    def _hand_out(self, receive: PendingReceive) -> bool:
        """Take messages for a receive. False: there are none.

        TooManyLeasedError where a partition may lease no more and no other one has anything.
        """
        is_final = self.queue.config.guarantee is Guarantee.AT_MOST_ONCE
        if is_final and not isinstance(receive, LeaseReceive):
            is_served = self._at_most_once.hand_out(receive)
            if not is_served:
                self._check_any()
            return is_served
        taken = receive.taken
        left = receive.count_max
        refused: TooManyLeasedError | None = None
        for partition in self._turns(receive):
            try:
                leases = partition.take(left, receive.lease_ms)
            except TooManyLeasedError as error:  # what the others have is handed out all the same
                refused = error
                continue
            if leases:
                taken.append((partition, leases))
                left -= len(leases)
                if not left:
                    break
        if not taken:
            self._check_any()
            if refused is not None:
                raise refused
            return False
        if self.queue.config.guarantee is Guarantee.AT_LEAST_ONCE:
            self._deliver(receive)
        else:
            self._deliver_committed(receive)
        return True

    def _turns(self, receive: PendingReceive) -> Iterator[PartitionQueue]:
        """The partitions at work that a receive may take from, beginning with another one each time."""
        self._turn += 1
        opened = self.partitions.opened
        for step in range(len(opened)):
            partition = opened[(self._turn + step) % len(opened)]
            is_wanted = receive.partitions is None or partition.index in receive.partitions
            if is_wanted and partition.partition.log.broken is None:
                yield partition

    def _check_any(self) -> None:
        with suppress(UnknownTopicError):  # it is being deleted, of which `close` tells
            self.partitions.check_any()

    def _deliver_committed(self, receive: PendingReceive) -> None:
        """Hand out once the leases are committed: those that are, where one of the partitions failed meanwhile."""
        committed: Taken = []
        missing = len(receive.taken)

        def told(share: tuple[PartitionQueue, list[Lease]], error: HeadraceError | None) -> None:
            nonlocal missing
            missing -= 1
            if error is None:
                committed.append(share)
            if missing or receive.promise.done():
                return
            receive.taken = committed
            if committed or error is None:
                self._deliver(receive)
            else:
                receive.fail(error)

        for share in list(receive.taken):
            share[0].tell_written(partial(told, share))

    def _deliver(self, receive: PendingReceive) -> None:
        """Read the messages and hand them out; at once where they are at hand."""
        if isinstance(receive, LeaseReceive):
            receive.keep_leases()
            return
        if receive.found is not None:
            self._loaded(receive, receive.found, None, receive.count_max)
            return
        received: list[Received] = []
        cold = False
        for partition, leases in receive.taken:
            for lease in leases:
                message = partition.cache.get(lease.offset)
                if message is None:
                    cold = True
                    break
                received.append(self._received(partition, lease, message, receive.lease_ms))
            if cold:
                break
        if cold:
            wanted = [Wanted(partition, lease.offset) for partition, leases in receive.taken for lease in leases]
            self._loader.load_first(
                wanted,
                lambda found, error, count: self._loaded(receive, found, error, count),
                bytes_max=RECEIVE_BYTES,
            )
            return
        for partition, leases in receive.taken:
            for lease in leases:
                partition.cache.take(lease.offset)
        self._finish(receive, received)

    def _loaded(self, receive: PendingReceive, found: Found, error: HeadraceError | None, count: int) -> None:
        """The first so many were looked for; they are enough for one answer, and the others are for the next."""
        if error is not None:
            self._unloaded(receive, error)
            return
        receive.keep_first(count)
        received = []
        for partition, leases in receive.taken:
            unreadable = []
            for lease in leases:
                message = found.get((partition.index, lease.offset))
                if message is None:
                    unreadable.append(lease.offset)
                else:
                    partition.cache.take(lease.offset)
                    received.append(self._received(partition, lease, message, receive.lease_ms))
            if unreadable:
                partition.give_up(unreadable)
        self._finish(receive, received)

    def _unloaded(self, receive: PendingReceive, error: HeadraceError) -> None:
        """Something could not be read. If that took a partition offline, the others' messages are handed out."""
        lost = [partition for partition, _ in receive.taken if partition.partition.log.broken is not None]
        if not lost:
            receive.give_back()
            receive.fail(error)
            return
        receive.taken = [share for share in receive.taken if share[0] not in lost]
        if receive.taken:
            self._deliver(receive)
        else:
            receive.fail(self.partitions.refusal(lost[0].index))

    def _begin_again(self, receive: PendingReceive) -> None:
        """Nothing came of what was chosen: wait on, or look for something else. Later, when it stands in no line."""

        def begin() -> None:
            if receive.is_cancelled or receive.promise.done():
                return
            if self._ended is not None:
                receive.fail(self._ended)
                return
            self._begin(receive)
            for one in sorted(self._line, key=lambda one: one.number):  # it has its place before those who came later
                self._line[one] = self._line.pop(one)

        receive.taken = []
        asyncio.get_running_loop().call_soon(begin)

    def _finish(self, receive: PendingReceive, received: list[Received]) -> None:
        if not received:
            self._begin_again(receive)
            return
        if receive.attempt_id is not None:
            self._attempts.remember(receive.attempt_id, receive.taken, self._clock.monotonic_ms())
        self._message_size.note(len(received[0].body))
        receive.keep(received)

    def _received(self, partition: PartitionQueue, lease: Lease, message: StoredMessage, lease_ms: int) -> Received:
        offset, number, first_ms, unused_count = lease
        index = partition.index
        if self.queue.config.guarantee is Guarantee.AT_MOST_ONCE:
            receipt = ""
        else:
            receipt = self._signer.sign(index, offset, min(number, ATTEMPTS_MAX), partition.partition.epoch)
        return Received(
            message.id or message_id(index, offset),
            message.body,
            message.key,
            message.headers,
            message.priority,
            message.deduplication_id,
            message.sent_ms,
            number - unused_count,
            first_ms,
            receipt,
            lease_ms,
            index,
            offset,
        )

    # The queue itself.

    async def reconfigure(self, queue: Queue) -> None:
        """Obey another configuration; it is in the log when this returns. What is offline learns it when it opens."""
        self.queue = queue
        for partition in list(self.partitions):
            await partition.catch_up()
        await self.each_partition(lambda partition, told: partition.configure(queue.config, told))
        self.serve()

    async def make_ordered(self, config: QueueConfig) -> None:
        """Obey a configuration that orders by key, if nothing is here: keys are looked at when messages come."""
        self.partitions.check_all()
        for partition in list(self.partitions):
            await partition.catch_up()
        count = sum(partition.message_count for partition in self.partitions)
        if count:
            raise InvalidConfigError(
                f"queue {self.queue.name} holds {count} messages, and only what is sent later would be in order; "
                "acknowledge or purge them, then set ordered"
            )
        await self.each_partition(lambda partition, told: partition.configure(config, told))

    async def purge(self) -> int:
        """Drop what is there, and say how much that was. Nothing is, where something would come back later."""
        self.partitions.check_all()
        purged = list(self.partitions)
        before = sum(partition.fold.counts.purged for partition in purged)
        await self.each_partition(lambda partition, told: partition.purge(told))
        return sum(partition.fold.counts.purged for partition in purged) - before

    async def each_partition(self, act: Callable[[PartitionQueue, Told], None]) -> None:
        """Have something decided in every partition that is at work, and wait until it is durable."""
        self.partitions.check_any()
        at_work = list(self.partitions)
        gather: Gather[HeadraceError | None] = Gather(len(at_work))
        for at, partition in enumerate(at_work):
            act(partition, setter(gather, [at]))
        for error in await gather.promise:
            if error is not None:
                raise error

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that is not done was sent, as of a few seconds ago; None where nothing is there."""
        oldest = (one.oldest[1] for one in self.partitions if one.oldest is not None and one.fold.live)
        return min(oldest, default=None)

    @property
    def has_dying(self) -> bool:
        """Whether messages are on their way to the dead-letter queue. Those of a broken partition are not."""
        opened = self.partitions.opened
        return any(one.fold.dying_reasons and one.partition.log.broken is None for one in opened)

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    def end(self, error: HeadraceError) -> None:
        """Send home everybody who waits in line."""
        self._ended = error
        for receive in [*self._line, *self._at_most_once.waiting]:
            receive.fail(error)

    def close(self, error: HeadraceError) -> None:
        """The queue is gone."""
        self.end(error)
        self.is_closed = True
        for partition in self.partitions.opened:
            partition.close(error)

    # Attempt ids: a receive that is repeated gets what the first try got, where it is still leased.

    def _supersede(self, attempt_id: str) -> None:
        """Whoever repeats a receive has given up the try that still waits: what comes must not go there."""
        for earlier in [one for one in self._line if one.attempt_id == attempt_id]:
            earlier.leave()
            earlier.promise.keep([])

    def _repeat(self, receive: PendingReceive, attempt_id: str) -> bool:
        for partition, lease in self._attempts.find(attempt_id, self._clock.monotonic_ms()):
            if partition.partition.log.broken is None and partition.holds(lease.offset, lease.number):
                with suppress(InvalidRequestError):  # 12 h in total: it keeps what it has
                    partition.extend(lease.offset, receive.lease_ms)
                receive.taken.append((partition, [lease]))
        if not receive.taken:
            return False
        self._deliver(receive)
        return True
