"""What is done for a queue every few seconds: its retention, how far its log may be cleaned, and what it forgets.

Retention is by the time of sending, or of the end of a message's delay, and written down as an entry, so a replay drops
the same messages. The limit of cleaning is the lowest of what named readers have not read, as far as their own limits
go. What the queue's history asks for is known to its fold.
"""

import asyncio
from contextlib import suppress

from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader, Wanted
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset


class Keeper:
    def __init__(self, *, loader: Loader) -> None:
        self._loader = loader

    async def keep(self, live: LiveQueue) -> None:
        for partition in list(live.partitions):
            if live.is_closed or partition.partition.log.broken is not None:  # since the last one was waited for
                continue
            with suppress(HeadraceError):  # the partition's own state says what is wrong with it
                await self._keep(partition)

    async def _keep(self, partition: PartitionQueue) -> None:
        partition.follow_start()
        partition.note_time()
        config = partition.fold.config
        now_ms = partition.now.now().wall_ms
        if config.retention_ms is not None:
            upto = await self._offset_at(partition, now_ms - config.retention_ms - config.delay_ms)
            await partition.catch_up()
            while partition.expire_old(upto):  # noqa: ASYNC110 - a step, and then others have their turn
                await asyncio.sleep(0)
        limit = partition.partition.high_watermark
        if partition.fold.readers:
            oldest = await self._offset_at(partition, now_ms - config.reader_lag_ms_max)
            for position in list(partition.fold.readers.values()):
                if position >= partition.fold.arrived_end:
                    continue  # it has read all; behind it are the queue's own entries, this position among them
                held = max(Offset(position), oldest, partition.partition.start_offset)
                if partition.partition.log.bytes_from(held) <= config.reader_lag_bytes_max:
                    limit = min(limit, held)
        partition.staying.clean_limit = limit
        await self._find_oldest(partition)
        while partition.fold.sweep_ids():  # noqa: ASYNC110 - a step, and then others have their turn
            await asyncio.sleep(0)

    async def _find_oldest(self, partition: PartitionQueue) -> None:
        """Since when the oldest message waits, which tells more about a queue than how many do."""
        offset = partition.fold.floor
        if offset >= partition.partition.high_watermark:
            partition.oldest = None
        elif partition.oldest is None or partition.oldest[0] != offset:
            found = await self._loader.read([Wanted(partition, offset)])
            message = found.get((partition.index, offset))
            partition.oldest = None if message is None else (offset, message.sent_ms)

    async def _offset_at(self, partition: PartitionQueue, time_ms: int) -> Offset:
        """The first offset that is not older than a time."""
        found = await partition.partition.offset_for_time(max(time_ms, 0))
        return partition.partition.high_watermark if found is None else found[0]
