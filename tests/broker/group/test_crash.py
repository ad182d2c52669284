"""Groups crashed at every disk call: what a client was told is never taken back (failure row 31 and the promise).

A run is carried to its end once. Before each disk call the disk is copied, together with what clients had been told by
then. Each copy then loses power, or only its process, and a new node starts on it.
"""

import random
from typing import NamedTuple

from tests.broker.group.world import GroupNode
from tests.broker.node import run

from headrace.broker.group.port import Caller, OffsetCommit, Sync
from headrace.testing.disk import SimulatedDisk


class Told(NamedTuple):
    offset: int = -1
    generation: int = 0
    is_assigned: bool = False
    txn_offset: int = -1


class Moment(NamedTuple):
    disk: SimulatedDisk
    told: Told


async def record(node: GroupNode, moments: list[Moment]) -> str:
    """One member commits, in a transaction too, joins again and commits; returns its id."""
    told = Told()
    disk = node.disk
    await node.make()
    await node.make("u")
    await node.commit(0, group="other")
    disk.on_call = lambda *_: moments.append(Moment(disk.copy(), told))
    member = await node.join()
    for turn in range(3):
        told = told._replace(generation=member.generation, is_assigned=False)
        caller = Caller(group_id="g", member_id=member.member_id, generation=member.generation)
        await node.groups.sync(Sync(caller=caller, assignments=((member.member_id, b"all"),)))
        told = told._replace(is_assigned=True)
        await node.commit(turn * 10, who=member)
        told = told._replace(offset=turn * 10)
        await node.groups.commit_transactional(caller, [OffsetCommit("u", 0, turn)], producer_id=5, producer_epoch=turn)
        await node.groups.end_transaction(5, turn, commit=True)
        told = told._replace(txn_offset=turn)
        member = await node.join(member.member_id)
    told = told._replace(generation=member.generation, is_assigned=False)
    disk.on_call = None
    moments.append(Moment(disk.copy(), told))
    return member.member_id


async def check(node: GroupNode, told: Told, member_id: str) -> None:
    assert told.offset <= await node.committed() <= told.offset + 10 + (told.offset < 0)
    assert told.txn_offset <= await node.committed(topic="u") <= told.txn_offset + 1
    if not told.generation:
        return
    if told.is_assigned and (await node.groups.describe("g")).state == "CompletingRebalance":
        return  # the group was on its way to the next generation, of which nobody was told yet
    caller = Caller(group_id="g", member_id=member_id, generation=told.generation)
    await node.groups.heartbeat(caller)
    if told.is_assigned:
        assert (await node.groups.sync(Sync(caller=caller))).assignment == b"all"


def test_a_crash_at_any_moment_takes_nothing_back_that_a_client_was_told() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        moments: list[Moment] = []
        member_id = await record(node, moments)
        assert len(moments) > 20
        node.abandon()
        for at, moment in enumerate(moments):
            for chooser in (None, random.Random(at), random.Random(1000 + at)):
                disk = moment.disk.copy()
                if chooser is not None:
                    disk.crash(chooser)
                heir = GroupNode(disk=disk)
                heir.store = node.store
                await heir.start()
                await check(heir, moment.told, member_id)
                heir.abandon()

    run(main())
