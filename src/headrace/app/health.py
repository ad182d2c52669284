"""Whether this node should get work, and if not, why (failure rows 15, 21, 24)."""

import asyncio

from headrace.app.loop_lag import LoopLag
from headrace.broker.broker import Broker
from headrace.cluster.store import Store
from headrace.gateways.rest.about import Reason
from headrace.host.node_clock import NodeClock
from headrace.log.driver import LogStore
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionId

# Four times what leaves a warning: a moment's delay is no reason to take a node out of service.
LOOP_BLOCKED_MS = 1_000
# The metadata store answers in less than this, or is not reachable.
STORE_MS_MAX = 1_000


def offline_partitions(logs: LogStore) -> list[PartitionId]:
    """Partitions whose files failed since the node started, or could not be opened then."""
    broken = [id for id, log in logs.logs.items() if log.broken is not None and not log.is_deleted]
    return list(dict.fromkeys([*broken, *logs.refused]))  # one that its replay stopped is in both


def reasons(*, broker: Broker, logs: LogStore, lag: LoopLag) -> list[Reason]:
    found = []
    if logs.is_full:
        found.append(
            Reason("disk_full", "the disk's reserve is reached and sends are refused; free space or add a disk")
        )
    if lag.last_ms >= LOOP_BLOCKED_MS:
        found.append(
            Reason("loop_blocked", f"the event loop was blocked for {lag.last_ms} ms; the node's log says when")
        )
    for id in offline_partitions(logs):
        found.append(
            Reason(
                "partition_offline",
                f"{partition_name(broker, id)} is offline here ({why_offline(logs, id)}); "
                "put the files or the disk right and restart the node",
            )
        )
    for log in logs.damage.among(logs.logs.values()):
        found.append(
            Reason(
                "partition_damaged",
                f"some messages of {partition_name(broker, log.id)} cannot be read; the node's log says which file is "
                "damaged and where: restore it from a backup, or move the readers past it",
            )
        )
    return found


def why_offline(logs: LogStore, id: PartitionId) -> str:
    """What took a partition offline, as the system or the check of its files said it."""
    log = logs.logs.get(id)
    broken = log.broken if log is not None else None
    return str(broken or logs.refused.get(id))


def warnings(*, clock: NodeClock, broker: Broker, logs: LogStore) -> list[Reason]:
    """What an operator should look at, though it is no reason to take the node out of service."""
    found = [
        # No reason against the node: without new sends it could not find out that the disk is repaired.
        Reason(
            "partition_not_written",
            f"the last write to {partition_name(broker, id)} failed ({log.write_error}); sends to it are refused until "
            "a write succeeds",
        )
        for id, log in logs.logs.items()
        if log.write_error is not None and log.broken is None and not log.is_deleted
    ]
    state = clock.state()
    if state.jump_ahead_ms is not None:
        found.append(
            Reason(
                "clock_jumped",
                f"the wall clock has jumped by {state.jump_ahead_ms} ms and is not believed, so retention by age goes "
                "on by steady time; set the clock right, or confirm it (headrace clock confirm). It is believed by "
                f"itself in {state.believed_in_ms} ms, unless it jumps again",
            )
        )
    return found


async def unready(*, is_started: bool, is_stopping: bool, store: Store, key: str) -> list[Reason]:
    """Why no new work should come here at this moment. The key is any that the store has."""
    if is_stopping:
        return [Reason("stopping", "the node stops; send work to another one, or here once it is back")]
    if not is_started:
        return [Reason("starting", "the node starts; retry in a moment")]
    try:
        async with asyncio.timeout(STORE_MS_MAX / 1000):
            await store.get(key)
    except (TimeoutError, HeadraceError) as error:
        why = str(error) or f"no answer within {STORE_MS_MAX} ms"
        return [Reason("metadata_unavailable", f"the metadata cannot be read ({why}); check the disk of the node")]
    return []


def partition_name(broker: Broker, id: PartitionId) -> str:
    """As people know it; a partition that the catalog has just lost goes by its uuid."""
    topic = broker.catalog.topics_by_id.get(id.topic_id)
    return id.directory if topic is None else f"{topic.name}-{id.partition}"
