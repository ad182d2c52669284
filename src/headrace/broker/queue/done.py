"""Messages that are done, as far as the log still has them: acknowledged, dead-lettered, expired, dropped or purged.

A queue forgets a message when it is done, so they are looked for in the log, among what is not done and the queue's own
entries. Which of these became of a message, when and after how many attempts, nobody has kept. A page reads a bounded
part of the log: it may hold fewer messages than were asked for, or none, and still not be the last.
"""

from collections.abc import Iterator

from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader, readable_messages
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Browsed, BrowsePage, MessageState
from headrace.log.reader import Slice
from headrace.model.batch import read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.model.message import message_id
from headrace.wire.message import StoredMessage

PAGE_BYTES = 8 * 1024 * 1024


async def browse_done(live: LiveQueue, loader: Loader, *, count_max: int, index: int, offset: int) -> BrowsePage:
    """A page of them behind a place, in the order of partitions and offsets."""
    found: list[Browsed] = []
    read_bytes = 0
    for partition in live.partitions:
        if partition.index < index:
            continue
        at = offset + 1 if partition.index == index else 0
        at = max(at, partition.partition.start_offset)
        while at < partition.partition.high_watermark:
            try:
                stretch = await loader.stretch(partition, at)
            except CorruptLogError:  # the partition is offline now
                break
            for message in done_in(partition, stretch, at):
                if len(found) == count_max:
                    return _page(live, found, found[-1].id)
                found.append(_browsed(partition, message))
            if stretch.next_offset <= at:
                break
            at = stretch.next_offset
            read_bytes += len(stretch.data)
            if read_bytes >= PAGE_BYTES:
                return _page(live, found, message_id(partition.index, at - 1))
    return _page(live, found, None)


async def find_done(partition: PartitionQueue, loader: Loader, offset: int) -> StoredMessage | None:
    """A message that is done; None where the log has none at this offset."""
    stretch = await loader.stretch(partition, offset)
    first = next(done_in(partition, stretch, offset), None)
    return first if first is not None and first.offset == offset else None


def done_in(partition: PartitionQueue, stretch: Slice, start: int) -> Iterator[StoredMessage]:
    """Those of a reading from an offset on. What a transaction withdrew was never sent, and is not among them."""
    withdrawn = partition.partition.aborted(Offset(start), stretch.next_offset)
    data = memoryview(stretch.data)
    while data:
        header = read_header(data)
        batch, data = data[: header.size], data[header.size :]
        if header.is_control or (
            header.is_transactional
            and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in withdrawn
            )
        ):
            continue
        for message in readable_messages(batch):
            if message.offset >= start and not partition.fold.is_live(message.offset):
                yield message


def _page(live: LiveQueue, found: list[Browsed], next: str | None) -> BrowsePage:
    return BrowsePage(messages=found, next=next, offline=live.partitions.offline())


def _browsed(partition: PartitionQueue, message: StoredMessage) -> Browsed:
    place = message_id(partition.index, message.offset)
    return Browsed(
        id=place,
        state=MessageState.ACKNOWLEDGED,
        body=message.body,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        sent_ms=message.sent_ms,
        attempt=None,
        partition=partition.index,
        offset=message.offset,
        first_id=None if message.id == place else message.id,
    )
