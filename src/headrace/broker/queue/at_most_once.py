"""Receives at most once: what is handed out is acknowledged first, and read before that.

What has been acknowledged is gone from the queue, so nobody else would get what one answer cannot hold or what turns
out to be unreadable. Messages are therefore chosen and read while they still wait; then it is chosen again, and taken
what was read, from the first one on. They are the same messages, unless somebody has taken or dropped them meanwhile:
then they are read again. One receive reads at a time, and the others follow in their order, or they would all read the
same.
"""

from collections.abc import Callable, Iterator

from headrace.broker.queue.loader import Found, Loader, Wanted
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.receive import PendingReceive
from headrace.model.errors import HeadraceError

# The partitions of which a receive may take, in the order in which it is their turn.
Turns = Callable[[PendingReceive], Iterator[PartitionQueue]]


class AtMostOnce:
    def __init__(
        self,
        loader: Loader,
        turns: Turns,
        *,
        bytes_max: Callable[[], int],
        deliver: Callable[[PendingReceive], None],
        begin_again: Callable[[PendingReceive], None],
    ) -> None:
        self._loader = loader
        self._turns = turns
        self._bytes_max = bytes_max
        self._deliver = deliver
        self._begin_again = begin_again
        self._is_reading = False
        self.waiting: dict[PendingReceive, None] = {}  # until somebody else has read

    def hand_out(self, receive: PendingReceive) -> bool:
        """Begin to serve a receive. False: there is nothing for it."""
        if self._is_reading:
            self.waiting[receive] = None
            return True
        partitions = list(self._turns(receive))
        chosen: list[Wanted] = []
        for partition in partitions:
            offsets = partition.choose(receive.count_max - len(chosen))
            chosen += [Wanted(partition, offset) for offset in offsets]
            if len(chosen) == receive.count_max:
                break
        if not chosen:
            return False
        self._is_reading = True

        def read(found: Found, error: HeadraceError | None, count: int) -> None:
            self._is_reading = False
            self._read(receive, partitions, chosen[:count], found, error)
            waiting, self.waiting = self.waiting, {}
            for one in waiting:
                self._begin_again(one)

        self._loader.load_first(chosen, read, bytes_max=self._bytes_max())
        return True

    def _read(
        self,
        receive: PendingReceive,
        partitions: list[PartitionQueue],
        wanted: list[Wanted],
        found: Found,
        error: HeadraceError | None,
    ) -> None:
        if receive.is_cancelled:
            return
        if error is not None:
            if all(partition.partition.log.broken is None for partition in partitions):
                receive.fail(error)
                return
            # What that took offline is passed over from now on.
        else:
            _give_up_unreadable(wanted, found)
        self._take(receive, partitions, found)
        if receive.taken:
            receive.found = found
            self._deliver(receive)
        else:
            self._begin_again(receive)

    def _take(self, receive: PendingReceive, partitions: list[PartitionQueue], found: Found) -> None:
        left = receive.count_max
        for partition in partitions:
            if partition.partition.log.broken is not None:
                continue
            offsets = []
            for offset in partition.choose(left):
                if (partition.index, offset) not in found:
                    break
                offsets.append(offset)
            if offsets:
                receive.taken.append((partition, partition.take_chosen(offsets)))
                left -= len(offsets)
            if not left:
                return


def _give_up_unreadable(wanted: list[Wanted], found: Found) -> None:
    lost: dict[PartitionQueue, list[int]] = {}
    for partition, offset in wanted:
        if (partition.index, offset) not in found:
            lost.setdefault(partition, []).append(offset)
    for partition, offsets in lost.items():
        partition.give_up(offsets)
