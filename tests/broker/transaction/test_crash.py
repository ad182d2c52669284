"""Transactions crashed at every disk call: all or nothing, and what a client was told is never taken back (row 29).

A run is carried to its end once. Before each disk call the disk is copied, together with what clients had been told by
then. Each copy then loses power, or only its process, and a new node starts on it.
"""

import os
import random
from typing import NamedTuple

import msgspec
import pytest
from tests.broker.node import LOG_CONFIG, run
from tests.broker.transaction.world import World, messages

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.folds.transaction.fold import Producer
from headrace.log.config import LogConfig
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk

# What goes through the journal is durable in the order in which it was written, and then many mistakes do not show.
every_log = pytest.mark.parametrize(
    "log_config",
    [LOG_CONFIG, msgspec.structs.replace(LOG_CONFIG, journal_append_bytes_max=1)],
    ids=["with the journal", "segment by segment"],
)
GROUP = Caller(group_id="g")
POWER_LOSSES = 5 if os.environ.get("HEADRACE_LONG") else 1  # of each copy, each losing something else
TURNS = 4  # of which every other one is aborted


class Told(NamedTuple):
    """How many turns were committed, as far as clients were told; and whether the next one was asked to commit."""

    committed: int = 0
    is_asked: bool = False


class Moment(NamedTuple):
    disk: SimulatedDisk
    told: Told


def expected(count: int) -> list[bytes]:
    """What stands in the output when so many turns are committed."""
    return [b"%d" % turn for turn in range(0, 2 * count, 2)]


async def record_stream(world: World, moments: list[Moment], *, is_bumped: bool) -> None:
    """Read, process, write: to two topics and with a group's offset."""
    told = Told()
    await world.make("t")
    await world.make("u")
    await world.groups.commit(GROUP, [OffsetCommit("t", 0, 0)])
    producer = await world.begin()
    disk = world.disk
    disk.on_call = lambda *_: moments.append(Moment(disk.copy(), told))
    for turn in range(TURNS):
        is_commit = turn % 2 == 0
        sequence = 0 if is_bumped else turn
        for topic in ("t", "u"):
            await world.send(producer, b"%d" % turn, sequence=sequence, topic=topic)
        await world.coordinator.commit_offsets(producer, GROUP, [OffsetCommit("t", 0, turn + 1)], joins=True)
        told = told._replace(is_asked=is_commit)
        following = await world.coordinator.end(producer, is_commit=is_commit, is_bumped=is_bumped)
        told = Told(told.committed + is_commit)
        producer = Producer("tx", *following)
    disk.on_call = None
    moments.append(Moment(disk.copy(), told))


async def check_stream(world: World, told: Told) -> None:
    await settle()
    await world.begin()  # a new instance, so that nothing is open any more
    found = await world.committed("t")
    assert found == await world.committed("u")
    count = len(found)
    assert found == expected(count)
    assert told.committed <= count <= told.committed + told.is_asked
    (offset,) = await world.groups.committed(GROUP, [("t", 0)], require_stable=True)
    assert offset.offset == max(2 * count - 1, 0)


async def record_queue(world: World, moments: list[Moment]) -> None:
    """Receive, send elsewhere, acknowledge."""
    told = Told()
    await world.queues.create("in")
    await world.queues.create("out")
    await world.queues.send("in", messages(*(b"%d" % turn for turn in range(TURNS))))
    received = await world.receive("in")
    first = await world.transactions.begin()
    await world.transactions.abort(first.id)
    disk = world.disk
    disk.on_call = lambda *_: moments.append(Moment(disk.copy(), told))
    for turn, message in enumerate(received):
        is_commit = turn % 2 == 0
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "out", messages(message.body))
        assert await world.transactions.acknowledge(begun.id, "in", [message.receipt]) == [None]
        told = told._replace(is_asked=is_commit)
        if is_commit:
            await world.transactions.commit(begun.id)
        else:
            await world.transactions.abort(begun.id)
        told = Told(told.committed + is_commit)
    disk.on_call = None
    moments.append(Moment(disk.copy(), told))


async def check_queue(world: World, told: Told) -> None:
    await settle()
    out = await world.bodies("out")
    assert out == expected(len(out))
    assert told.committed <= len(out) <= told.committed + told.is_asked
    await world.clock.elapse(60_000)  # every lease is over
    left = await world.bodies("in")
    assert sorted(out + left) == [b"%d" % turn for turn in range(TURNS)], "each is in one of the two queues"


def crashes(moments: list[Moment]) -> list[Moment]:
    found = []
    for at, moment in enumerate(moments):
        for chooser in (None, *(random.Random(1000 * at + more) for more in range(POWER_LOSSES))):
            disk = moment.disk.copy()
            if chooser is not None:
                disk.crash(chooser)
            found.append(Moment(disk, moment.told))
    return found


async def heir_of(world: World, disk: SimulatedDisk) -> World:
    heir = World(disk=disk, log_config=world.log_config)
    heir.store = world.store
    await heir.start()
    return heir


@every_log
def test_a_crash_at_any_moment_leaves_all_of_a_producers_transaction_or_nothing(log_config: LogConfig) -> None:
    async def main() -> None:
        for is_bumped in (False, True):
            world = await World(log_config=log_config).start()
            moments: list[Moment] = []
            await record_stream(world, moments, is_bumped=is_bumped)
            assert len(moments) > 20
            world.abandon()
            for disk, told in crashes(moments):
                heir = await heir_of(world, disk)
                await check_stream(heir, told)
                heir.abandon()

    run(main())


@every_log
def test_a_crash_at_any_moment_leaves_a_message_in_the_queue_or_its_result_and_never_both(
    log_config: LogConfig,
) -> None:
    async def main() -> None:
        world = await World(log_config=log_config).start()
        moments: list[Moment] = []
        await record_queue(world, moments)
        assert len(moments) > 20
        world.abandon()
        for disk, told in crashes(moments):
            heir = await heir_of(world, disk)
            await check_queue(heir, told)
            heir.abandon()

    run(main())
