"""A simulated machine: disk, clock, threads, network and process for the nodes that run on it, one after another."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Protocol

from headrace.cluster.store import Event, Item, LeaseId, Listing, Revision, Store
from headrace.host.bundle import Host
from headrace.host.clock import Clock
from headrace.host.process import ProcessUsage
from headrace.host.threads import Threads
from headrace.testing.clock import WALL_MS, LoopClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.event_loop import Actor, VirtualLoop
from headrace.testing.fault import Operation
from headrace.testing.network import Network, NetworkTransport
from headrace.testing.rand import SeededRand
from headrace.testing.store import MemoryStore
from headrace.testing.threads import DelayedThreads
from headrace.testing.transport import Machine

_OPEN_FILES = 1_000_000


class Delays(Protocol):
    """How slow a machine is now."""

    def thread_s(self, pool: str) -> float: ...

    def store_s(self) -> float: ...


class SimulatedLock:
    """Always free: a machine's next node begins when the one before it is gone."""

    def try_lock(self) -> bool:
        return True

    def release(self) -> None: ...


class SimulatedProcess:
    """A `headrace.host.bundle.Process` that changes nothing of the real one."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def prepare(self) -> None: ...

    def settle(self) -> None: ...

    def raise_open_files_limit(self) -> int:
        return _OPEN_FILES

    def make_lock(self, path: str) -> SimulatedLock:
        return SimulatedLock()

    def make_private(self, directory: str) -> None: ...

    def boot_id(self) -> str:
        return self._boot_id

    def on_stop_signal(self, callback: Callable[[], None]) -> None: ...

    def usage(self) -> ProcessUsage:
        return ProcessUsage(0.0, 0)

    def collector_stats(self) -> Sequence[Mapping[str, int]]:
        return ()

    def python_version(self) -> str:
        return "simulated"


class SimulatedMachine:
    """What outlives a node's process: the disk, the wall clock, and the place on the network."""

    def __init__(self, host: str, *, seed: int, loop: VirtualLoop, network: Network, delays: Delays) -> None:
        self.host = host
        self.disk = SimulatedDisk()
        self.disk.on_call = self._check_alive
        self.clock = LoopClock(loop)
        self.place: Machine = network.add_machine(host, loop.world)
        self.boot_count = 0
        self._seed = seed
        self._process_count = 0
        self._loop = loop
        self._network = network
        self._delays = delays

    def boot(self) -> None:
        """Switch on. Monotonic time and the boot's id begin anew; the wall clock has gone on."""
        wall_ms = self.clock.wall_ms() - int(self._loop.time() * 1000) if self.boot_count else WALL_MS
        self.boot_count += 1
        self.clock = LoopClock(self._loop, boot_s=self._loop.time(), wall_ms=wall_ms)
        self.place.has_power = True

    def make_host(self, actor: Actor) -> Host:
        """The host of a node that starts now."""
        self.place.actor = actor
        self._process_count += 1

        def make_threads(*, name: str, count_max: int) -> Threads:
            return DelayedThreads(count_max=count_max, delay_s=lambda: self._delays.thread_s(name))

        return Host(
            clock=self.clock,
            disk=self.disk,
            rand=SeededRand(self._seed * 1_000_003 + self._process_count),
            transport=NetworkTransport(self._network, self.place),
            process=SimulatedProcess(f"boot-{self.boot_count}"),
            make_threads=make_threads,
        )

    def _check_alive(self, operation: Operation, path: str) -> None:
        """A `finally` block of a process that is gone reaches nothing."""
        if self._loop.current.is_dead:
            raise OSError(5, "the process is gone", path)
        self._network.trace.note("disk", operation, path)


class SharedMetadata:
    """A `headrace.app.metadata.Metadata`: the store outlives the node, and every call takes some time."""

    file_name = None

    def __init__(self, store: MemoryStore, *, delays: Delays) -> None:
        self._store = store
        self._delays = delays

    async def open(self, directory: str, *, clock: Clock, threads: Threads, make_room: Callable[[], bool]) -> Store:
        return StoreSession(self._store, self._delays)


class StoreSession:
    """A `headrace.cluster.store.Store`: what one node sees of the store that all share."""

    operations_max = MemoryStore.operations_max

    def __init__(self, store: MemoryStore, delays: Delays) -> None:
        self._store = store
        self._delays = delays

    async def get(self, key: str) -> Item | None:
        await self._pass()
        return await self._store.get(key)

    async def list(self, prefix: str) -> Listing:
        await self._pass()
        return await self._store.list(prefix)

    def watch(self, prefix: str, after_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        return self._store.watch(prefix, after_revision)

    async def transact(
        self,
        *,
        compares: Mapping[str, Revision] | None = None,
        puts: Mapping[str, bytes] | None = None,
        deletes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> Revision:
        await self._pass()
        revision = await self._store.transact(compares=compares, puts=puts, deletes=deletes, lease=lease)
        await self._pass()
        return revision

    async def grant(self, ttl_ms: int) -> LeaseId:
        await self._pass()
        return await self._store.grant(ttl_ms)

    async def renew(self, lease: LeaseId) -> None:
        await self._pass()
        await self._store.renew(lease)

    async def revoke(self, lease: LeaseId) -> None:
        await self._pass()
        await self._store.revoke(lease)

    async def close(self) -> None:
        """The store goes on; this node's watches end with their tasks."""

    async def _pass(self) -> None:
        await asyncio.sleep(self._delays.store_s())
