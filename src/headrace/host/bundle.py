"""Everything that a node has from outside, as one value: what it is given is all that it can reach.

A node is `Node(config, host)`. Production gives it `system_host()`, a simulation the parts of `headrace.testing`, and
nothing above this room makes a clock, a disk, threads or a transport of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.host.clock import Clock, SystemClock
from headrace.host.disk import Disk, SystemDisk
from headrace.host.process import ProcessUsage, SystemProcess
from headrace.host.rand import Rand, SystemRand
from headrace.host.threads import PoolThreads, Threads
from headrace.host.transport import TcpTransport, Transport


class Lock(Protocol):
    def try_lock(self) -> bool:
        """False: another process has it."""

    def release(self) -> None: ...


class Process(Protocol):
    """The process that a node lives in: what it sets up once, and what it says of itself."""

    def prepare(self) -> None:
        """Set up memory, threads and file modes, before the node makes its first file."""

    def settle(self) -> None:
        """Keep the cycle collector off the hot path, once everything that lasts has been made."""

    def raise_open_files_limit(self) -> int:
        """Allow as many descriptors as the machine gives, and return how many those are."""

    def make_lock(self, path: str) -> Lock:
        """The lock of a data directory, which only one process can hold."""

    def make_private(self, directory: str) -> None:
        """Keep a data directory to its owner."""

    def boot_id(self) -> str:
        """Differs after each boot of the machine; empty where that is not known."""

    def on_stop_signal(self, callback: Callable[[], None]) -> None:
        """Call on the loop when the process is asked to stop."""

    def usage(self) -> ProcessUsage: ...

    def collector_stats(self) -> Sequence[Mapping[str, int]]:
        """What Python's cycle collector has done, generation by generation."""

    def python_version(self) -> str: ...


class MakeThreads(Protocol):
    def __call__(self, *, name: str, count_max: int) -> Threads: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    clock: Clock
    disk: Disk
    rand: Rand
    transport: Transport
    process: Process
    make_threads: MakeThreads


def system_host() -> Host:
    """The machine itself."""
    return Host(
        clock=SystemClock(),
        disk=SystemDisk(),
        rand=SystemRand(),
        transport=TcpTransport(),
        process=SystemProcess(),
        make_threads=PoolThreads,
    )
