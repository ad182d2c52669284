"""A queue's figures, added up over its partitions that are at work."""

from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.port import QueueCounts


def counts_of(live: LiveQueue) -> QueueCounts:
    partitions = list(live.partitions)
    folds = [partition.advanced_fold() for partition in partitions]
    counts = [fold.counts for fold in folds]
    return QueueCounts(
        visible=sum(fold.visible_count for fold in folds),
        leased=sum(fold.leased_count for fold in folds),
        delayed=sum(fold.delayed_count for fold in folds),
        sent=sum(count.sent for count in counts),
        acknowledged=sum(count.acknowledged for count in counts),
        dead_lettered=sum(count.dead_lettered for count in counts),
        expired=sum(count.expired for count in counts),
        dropped=sum(count.dropped for count in counts),
        purged=sum(count.purged for count in counts),
        withdrawn=sum(count.withdrawn for count in counts),
        deduplicated=sum(partition.duplicate_count for partition in partitions),
        oldest_ms=live.oldest_ms,
        size_bytes=sum(partition.partition.size_bytes for partition in partitions),
    )
