"""What a long log costs on a real disk once nearly all of it is dead."""

import asyncio
import os
from pathlib import Path

import pytest

from headrace.cli.log import walk
from headrace.host.clock import SystemClock
from headrace.host.disk import SystemDisk
from headrace.host.rand import SystemRand
from headrace.host.threads import PoolThreads
from headrace.log.config import LogConfig
from headrace.log.driver import LogStore
from headrace.log.partition_log import Incoming
from headrace.model.batch import BatchHeader, assign, read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Epoch, Offset
from headrace.model.topic import Durability, TopicConfig
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

from .cleaning import Fold, batches_of
from .world import partition_id

MIB = 1024 * 1024
BATCH_MESSAGES = 200
BATCHES = 1000
LIVE_STEP = 200  # one of so many messages is live: a thousand in all
VALUE = b"v" * 1000


def used_bytes(directory: Path) -> int:
    """Blocks that the files take, directories left out."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


async def fill(store: LogStore, template: bytes) -> None:
    log = store.logs[partition_id(0)]
    for number in range(BATCHES):
        data = bytearray(template)
        assign(data, 0, Offset(number * BATCH_MESSAGES), Epoch(0))
        header: BatchHeader = read_header(data)
        log.append([Incoming(header, memoryview(data))], epoch=Epoch(0), now_ms=0)
    await store.committer.flush(log)


def test_a_thousand_live_messages_scattered_over_a_long_log_take_little_more_than_they_need(tmp_path: Path) -> None:
    async def main() -> None:
        threads = PoolThreads(name="log", count_max=2)
        store = LogStore(
            disk=SystemDisk(),
            clock=SystemClock(),
            rand=SystemRand(),
            sync_threads=threads,
            read_threads=threads,
            directory=str(tmp_path),
            config=LogConfig(journal_bytes=MIB, disk_reserve_bytes=0),
        )
        topic = TopicConfig(durability=Durability.MEMORY, retention_ms=-1, segment_bytes_max=16 * MIB)
        await store.start({partition_id(0): topic})
        log = store.logs[partition_id(0)]
        await fill(store, bytes(encode_batch([Record(1000, None, VALUE)] * BATCH_MESSAGES)))
        assert log.size_bytes > 200_000_000
        live = range(7, BATCHES * BATCH_MESSAGES, LIVE_STEP)
        fold = Fold(log)
        fold.messages, fold.end_offset = set(live), log.end_offset
        fold.attach()
        log.take_snapshots = lambda: (fold.snapshot()[0]._replace(data=b"small"),)
        await store.maintain(log, floor=log.durable_offset)
        await store.checkpoint(log)
        while await store.clean(log):
            pass
        partition = tmp_path / "partitions"
        needed = len(live) * (len(VALUE) + 61)
        assert used_bytes(partition) < 1.5 * needed + 64 * 1024
        assert not any((tmp_path / "trash").iterdir())
        assert len(os.listdir(next(partition.iterdir()))) < 15
        assert await offsets(store) == list(live)
        await store.stop()
        threads.close()
        check_tool(partition)

    asyncio.run(main())


def check_tool(partition: Path) -> None:
    """The command line's own walk over a segment knows of gaps, and still of damage."""
    disk = SystemDisk()
    (cleaned,) = (path for path in partition.rglob("*.log") if path.name.count(".") == 2)
    assert sum(header.record_count for _, header, _ in walk(disk, cleaned)) == BATCHES * BATCH_MESSAGES // LIVE_STEP
    file = disk.open(str(cleaned))
    file.pwritev([b"\x01"], 6)  # a higher base offset, which is not under the batch's checksum
    file.close()
    with pytest.raises(CorruptLogError):
        list(walk(disk, cleaned))


async def offsets(store: LogStore) -> list[int]:
    log = store.logs[partition_id(0)]
    found: list[int] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = await store.read(log.read(offset, bytes_max=MIB, upto=log.end_offset))
        found += [record.offset for batch in batches_of(part.data) for record in decode_batch(batch)]
        offset = part.next_offset
    return found
