"""A log store on a simulated disk, with a model of what it promised beside it."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any
from uuid import UUID

from headrace.host.ballast import Ballast
from headrace.host.threads import Threads
from headrace.log.config import LogConfig
from headrace.log.driver import LogStore
from headrace.log.partition_log import Incoming, PartitionLog
from headrace.model.batch import read_header
from headrace.model.ids import Epoch, Offset, PartitionId
from headrace.model.topic import Durability, TopicConfig
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.rand import SeededRand
from headrace.testing.threads import InlineThreads
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

DIRECTORY = "/data"
TOPIC = UUID(int=7)

SMALL = LogConfig(
    journal_bytes=16 * 1024,
    journal_append_bytes_max=1500,
    checkpoint_bytes=6 * 1024,
    disk_reserve_bytes=0,
    open_files_max=3,
)


def partition_id(index: int) -> PartitionId:
    return PartitionId(TOPIC, index)


def topic_config(durability: Durability = Durability.FSYNC, *, retention_ms: int = -1) -> TopicConfig:
    return TopicConfig(
        durability=durability, retention_ms=retention_ms, segment_bytes_max=4096, index_interval_bytes=300
    )


def make_batch(values: Sequence[bytes], *, timestamp_ms: int = 1_700_000_000_000, key: bytes | None = None) -> Incoming:
    data = memoryview(encode_batch([Record(timestamp_ms, key, value) for value in values]))
    return Incoming(read_header(data), data)


class World:
    """One node's logs, as long as it runs. `promised` is what it may not lose: values by partition and offset."""

    def __init__(
        self,
        disk: SimulatedDisk,
        configs: dict[PartitionId, TopicConfig],
        config: LogConfig = SMALL,
        *,
        sync_threads: Threads | None = None,
        read_threads: Threads | None = None,
    ) -> None:
        self.sync_threads = InlineThreads() if sync_threads is None else sync_threads
        self.read_threads = InlineThreads() if read_threads is None else read_threads
        self.disk = disk
        self.configs = configs
        self.clock = SimulatedClock()
        self.rand = SeededRand(1)
        self.config = config
        self.sent: dict[PartitionId, dict[int, bytes]] = {id: {} for id in configs}
        self.promised_end: dict[PartitionId, int] = dict.fromkeys(configs, 0)
        self.epoch = Epoch(0)

    async def start(self, *, ballast: Ballast | None = None) -> None:
        self.store = LogStore(
            ballast=ballast,
            disk=self.disk,
            clock=self.clock,
            rand=self.rand,
            sync_threads=self.sync_threads,
            read_threads=self.read_threads,
            directory=DIRECTORY,
            config=self.config,
        )
        await self.store.start(self.configs)
        self.epoch = Epoch(self.epoch + 1)
        for id, log in self.store.logs.items():
            log.listener = lambda id=id, log=log: self._note(id, log)  # type: ignore[misc]

    def _note(self, id: PartitionId, log: PartitionLog) -> None:
        if log.broken is None and log.config.durability is Durability.FSYNC:
            self.promised_end[id] = max(self.promised_end[id], log.durable_offset)

    def log(self, index: int = 0) -> PartitionLog:
        return self.store.logs[partition_id(index)]

    def append(
        self, index: int, values: Sequence[bytes], *, timestamp_ms: int | None = None, may_defer: bool = True
    ) -> Offset:
        """Append without waiting; the promise comes when the loop has turned."""
        log = self.log(index)
        batch = make_batch(values, timestamp_ms=self.clock.wall_ms() if timestamp_ms is None else timestamp_ms)
        is_fsync = log.config.durability is Durability.FSYNC
        takes_journal = self.store.committer.takes_journal(log, len(batch.data), log.end_offset)
        defer = may_defer and is_fsync and takes_journal
        (base,) = log.append([batch], epoch=self.epoch, now_ms=self.clock.wall_ms(), defer=defer)
        for delta, value in enumerate(values):
            self.sent[log.id][base + delta] = value
        if is_fsync:
            self.store.committer.commit(log, base, [batch.data], len(batch.data))
        return base

    async def settle(self) -> None:
        await settle()

    async def read_all(self, index: int) -> dict[int, bytes]:
        """Every message that the log serves, by offset."""
        log = self.log(index)
        found: dict[int, bytes] = {}
        offset = log.start_offset
        while offset < log.end_offset:
            part = await self.store.read(log.read(offset, bytes_max=700, upto=log.end_offset))
            assert len(part.data), f"nothing at {offset} below {log.end_offset}"
            position = 0
            while position < len(part.data):
                header = read_header(part.data, position)
                batch = memoryview(part.data)[position : position + header.size]
                found |= {record.offset: record.value or b"" for record in decode_batch(batch)}
                position += header.size
            offset = part.next_offset
        return {offset: value for offset, value in found.items() if offset >= log.start_offset}

    async def read_bytes(self, index: int = 0) -> bytes:
        """Everything that the log serves, as stored."""
        log = self.log(index)
        parts: list[bytes] = []
        offset = log.start_offset
        while offset < log.end_offset:
            part = await self.store.read(log.read(offset, bytes_max=150, upto=log.end_offset))
            assert len(part.data), f"nothing at {offset} below {log.end_offset}"
            parts.append(bytes(part.data))
            offset = part.next_offset
        return b"".join(parts)

    async def restart(self) -> None:
        """Stop cleanly and come back."""
        await self.store.stop()
        await self.start()

    def directory(self, index: int = 0) -> str:
        return f"{DIRECTORY}/partitions/{partition_id(index).directory}"

    def abandon(self) -> None:
        """Stop without a word, as a killed process does."""
        for task in list(self.store._tasks):
            task.cancel()


def successor(world: World, disk: SimulatedDisk) -> World:
    """A new process on what a crash left of a disk, with the old one's promises."""
    heir = World(disk, world.configs, world.config)
    heir.sent = {id: dict(values) for id, values in world.sent.items()}
    heir.promised_end = dict(world.promised_end)
    heir.epoch = world.epoch
    heir.clock.advance(world.clock.monotonic_ms() + 1)
    return heir


async def check_promises(world: World) -> None:
    """Nothing promised is missing, and nothing is served that was not sent at that offset."""
    for id, sent in world.sent.items():
        log = world.store.logs[id]
        found = await world.read_all(id.partition)
        assert sorted(found) == list(range(log.start_offset, log.end_offset)), "offsets have a hole"
        for offset, value in found.items():
            assert sent.get(offset) == value, f"{id.partition} at {offset} serves what was never sent there"
        assert log.end_offset >= world.promised_end[id], (
            f"partition {id.partition} promised {world.promised_end[id]} and ends at {log.end_offset}"
        )


async def crash_and_check(world: World, disk: SimulatedDisk, chooser: random.Random) -> World:
    """Crash, recover twice, check both times, and return the second process.

    The first crash loses power, or only the process: then the page cache lives on, and what the recovery serves from it
    must not vanish when the power fails after all.
    """
    if chooser.random() < 0.7:
        disk.crash(chooser)
    first = successor(world, disk)
    await first.start()
    await check_promises(first)
    contents = [await first.read_all(id.partition) for id in world.configs]
    first.abandon()
    disk.crash(chooser)
    second = successor(first, disk)
    await second.start()
    assert [await second.read_all(id.partition) for id in world.configs] == contents, "recovery twice is not once"
    for id in world.configs:
        log = second.store.logs[id]
        # Offsets above the recovered end are free again: whoever sent there was not answered.
        second.sent[id] = {offset: value for offset, value in second.sent[id].items() if offset < log.end_offset}
    return second


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def disk_of(files: dict[str, bytes]) -> SimulatedDisk:
    """A disk that holds these files, all durable."""
    disk = SimulatedDisk()
    directories = {path.rpartition("/")[0] for path in files}
    for directory in sorted(directories | {f"{DIRECTORY}/trash"}):
        disk.make_directory(directory)
    for path, data in files.items():
        disk.open(path, create=True)
        disk.overwrite(path, data)
    for directory in sorted(directories):
        while directory:
            disk.sync_directory(directory)
            directory = directory.rpartition("/")[0]
    disk.sync_directory("/")
    return disk
