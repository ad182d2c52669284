"""What a node counts about its queues. `docs/metrics.md` says what each series is for."""

import asyncio
from collections import Counter

from headrace.app.exposition import Exposition, Labels
from headrace.broker.queue.port import QueueCounts
from headrace.broker.queue.queues import NodeQueues
from headrace.model.errors import HeadraceError

STATES = ("visible", "leased", "delayed")
EVENTS = ("sent", "acknowledged", "dead_lettered", "expired", "dropped", "purged", "withdrawn", "deduplicated")
OTHER_QUEUES = "(other)"

_QUEUES_A_TURN = 64


async def write_queues(out: Exposition, queues: NodeQueues, *, names_max: int, wall_ms: int) -> None:
    """The first queues by name have series of their own; the others are added up."""
    counts = await _counts(queues)
    messages: Counter[tuple[str, str]] = Counter()
    events: Counter[tuple[str, str]] = Counter()
    ages: dict[str, float] = {}
    for at, (name, count) in enumerate(counts.items()):
        shown = name if at < names_max else OTHER_QUEUES
        for state in STATES:
            messages[shown, state] += getattr(count, state)
        for event in EVENTS:
            events[shown, event] += getattr(count, event)
        age_ms = 0 if count.oldest_ms is None else max(wall_ms - count.oldest_ms, 0)
        ages[shown] = max(ages.get(shown, 0.0), age_ms / 1000)
    out.one("headrace_queues", "gauge", "Queues on this node.", len(counts))
    out.family("headrace_queue_messages", "gauge", "Messages that are not done, by state.", _pairs(messages, "state"))
    out.family(
        "headrace_queue_messages_total", "counter", "What became of messages, by event.", _pairs(events, "event")
    )
    out.family(
        "headrace_queue_oldest_message_seconds",
        "gauge",
        "How long the oldest message that is not done has been there, as of a few seconds ago.",
        [({"queue": name}, age) for name, age in ages.items()],
    )
    offline: Counter[str] = Counter()
    for at, name in enumerate(queues.names()):
        offline[name if at < names_max else OTHER_QUEUES] += queues.offline_count(name)
    out.family(
        "headrace_queue_partitions_offline",
        "gauge",
        "Partitions that are offline here; what they hold is not in the queue's other series.",
        [({"queue": name}, count) for name, count in offline.items()],
    )
    waiting = {name: queues.waiting_count(name) for name in counts}
    out.one("headrace_queue_receives_waiting", "gauge", "Receives that wait for a message.", sum(waiting.values()))
    out.one("headrace_queue_cache_bytes", "gauge", "Decoded messages kept in memory.", queues.cache_size_bytes)


async def _counts(queues: NodeQueues) -> dict[str, QueueCounts]:
    found = {}
    for at, name in enumerate(queues.names()):
        if at % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
            await asyncio.sleep(0)
        try:
            found[name] = queues.describe(name).counts
        except HeadraceError:
            continue  # deleted meanwhile, or not opened, of which its offline partitions tell
    return found


def _pairs(counts: Counter[tuple[str, str]], label: str) -> list[tuple[Labels, float]]:
    return [({"queue": name, label: value}, count) for (name, value), count in counts.items()]
