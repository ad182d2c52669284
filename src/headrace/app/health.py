"""Whether this node should get work, and if not, why (failure rows 15, 21, 24)."""

from headrace.app.loop_lag import LoopLag
from headrace.broker.broker import Broker
from headrace.gateways.rest.about import Reason
from headrace.log.driver import LogStore
from headrace.model.ids import PartitionId

# Four times what leaves a warning: a moment's delay is no reason to take a node out of service.
LOOP_BLOCKED_MS = 1_000


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
        name = f"{partition_name(broker, id)}"
        found.append(
            Reason("partition_offline", f"{name} is offline here; the node's log says why: check the disk and restart")
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


def partition_name(broker: Broker, id: PartitionId) -> str:
    """As people know it; a partition that the catalog has just lost goes by its uuid."""
    topic = broker.catalog.topics_by_id.get(id.topic_id)
    return id.directory if topic is None else f"{topic.name}-{id.partition}"
