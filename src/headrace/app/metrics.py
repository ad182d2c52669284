"""What a node counts, in Prometheus's text format 0.0.4. `docs/metrics.md` says what each series is for.

Nothing is kept here: the rooms count with plain integers as they work, and a scrape reads them. Labels take their
values from closed sets (names of APIs, codes, routes), never from what a client sends, except names of topics, queues
and groups, and of each at most `TOPIC_SERIES_MAX`. Partitions are visited in slices, so that a scrape of a large node
does not hold the loop.
"""

import asyncio
from collections.abc import Mapping
from uuid import UUID

from headrace import __version__
from headrace.app.exposition import Exposition, by_label
from headrace.app.group_metrics import write_groups
from headrace.app.health import offline_partitions
from headrace.app.loop_lag import LoopLag
from headrace.app.queue_metrics import write_queues
from headrace.app.transaction_metrics import write_transactions
from headrace.broker.broker import Broker
from headrace.broker.group.port import GroupPort
from headrace.broker.queue.queues import NodeQueues
from headrace.broker.transaction.coordinator import Coordinator
from headrace.gateways.answers import AnswerBudget
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.kafka.errors import ErrorCode
from headrace.gateways.kafka.listener import KafkaListener
from headrace.host.node_clock import NodeClock
from headrace.host.process import collector_stats, process_usage, python_version
from headrace.log.driver import LogStore
from headrace.wire.kafka.registry import APIS

# Topics with series of their own: the first by name. The others are added up under a name that no topic can have.
TOPIC_SERIES_MAX = 200
OTHER_TOPICS = "(other)"
_PARTITIONS_A_TURN = 256
_UNKNOWN_API = "unknown"


class TopicSum:
    """One topic's partitions on this node, added up."""

    __slots__ = ("end_offset", "partitions", "size_bytes")

    def __init__(self) -> None:
        self.partitions = 0
        self.end_offset = 0
        self.size_bytes = 0

    def add(self, other: "TopicSum") -> None:
        self.partitions += other.partitions
        self.end_offset += other.end_offset
        self.size_bytes += other.size_bytes


def with_own_series(sums: Mapping[str, TopicSum]) -> dict[str, TopicSum]:
    """The topics that are shown by name, and the rest of them as one."""
    names = sorted(sums)
    shown = {name: sums[name] for name in names[:TOPIC_SERIES_MAX]}
    if len(names) > TOPIC_SERIES_MAX:
        rest = shown[OTHER_TOPICS] = TopicSum()
        for name in names[TOPIC_SERIES_MAX:]:
            rest.add(sums[name])
    return shown


class NodeMetrics:
    def __init__(
        self,
        *,
        broker: Broker,
        queues: NodeQueues,
        groups: GroupPort,
        transactions: Coordinator,
        logs: LogStore,
        kafka: KafkaListener,
        http: HttpCounters,
        answers: AnswerBudget,
        lag: LoopLag,
        clock: NodeClock,
    ) -> None:
        self._broker = broker
        self._queues = queues
        self._groups = groups
        self._transactions = transactions
        self._logs = logs
        self._kafka = kafka
        self._http = http
        self._answers = answers
        self._lag = lag
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._started_wall_ms = clock.wall_ms()

    async def render(self) -> bytes:
        sums = await self._topic_sums()
        out = Exposition()
        self._node(out)
        self._process(out)
        self._kafka_gateway(out)
        self._http_gateway(out)
        self._answer_budget(out)
        self._log_store(out, sums)
        self._topics(out, sums)
        await write_queues(out, self._queues, names_max=TOPIC_SERIES_MAX, wall_ms=self._clock.wall_ms())
        await write_groups(out, self._groups, names_max=TOPIC_SERIES_MAX)
        write_transactions(out, self._transactions, wall_ms=self._clock.wall_ms())
        return out.encode()

    async def _topic_sums(self) -> dict[str, TopicSum]:
        by_id: dict[UUID, TopicSum] = {}
        for index, partition in enumerate(list(self._broker.partitions())):
            if index % _PARTITIONS_A_TURN == _PARTITIONS_A_TURN - 1:
                await asyncio.sleep(0)
            found = by_id.setdefault(partition.id.topic_id, TopicSum())
            found.partitions += 1
            found.end_offset += partition.end_offset
            found.size_bytes += partition.size_bytes
        topics = self._broker.catalog.topics_by_id
        return {topics[id].name: found for id, found in by_id.items() if id in topics}

    def _node(self, out: Exposition) -> None:
        labels = {"version": __version__, "python": python_version(), "node_id": str(self._broker.node_id)}
        out.family("headrace_info", "gauge", "What runs here. Always 1.", [(labels, 1)])
        elapsed_ms = self._clock.monotonic_ms() - self._started_ms
        ahead_s = (self._clock.wall_ms() - self._clock.trusted_ms()) / 1000
        out.one("headrace_clock_ahead_seconds", "gauge", "The wall clock ahead of trusted time.", ahead_s)
        is_believed = self._clock.state().jump_ahead_ms is None
        out.one("headrace_clock_believed", "gauge", "0 while the wall clock has jumped.", int(is_believed))
        out.one("headrace_uptime_seconds", "gauge", "Time since this node began to serve.", elapsed_ms / 1000)
        lag = self._lag
        out.one("headrace_event_loop_lag_seconds", "gauge", "How late the event loop was last.", lag.last_ms / 1000)
        out.one("headrace_event_loop_lag_max_seconds", "gauge", "The latest it ever was.", lag.max_ms / 1000)
        out.one("headrace_event_loop_alarms_total", "counter", "Times it was late enough for an alarm.", lag.alarms)

    def _process(self, out: Exposition) -> None:
        usage = process_usage()
        started_s = self._started_wall_ms / 1000
        out.one("process_cpu_seconds_total", "counter", "CPU time, user and system.", usage.cpu_seconds)
        out.one("process_resident_memory_bytes", "gauge", "Resident memory.", usage.resident_bytes)
        out.one("process_start_time_seconds", "gauge", "When this node began to serve, since 1970.", started_s)
        stats = [({"generation": str(number)}, found) for number, found in enumerate(collector_stats())]
        for name, key, help in (
            ("python_gc_collections_total", "collections", "Runs of Python's cycle collector."),
            ("python_gc_objects_collected_total", "collected", "Objects that it freed."),
            ("python_gc_objects_uncollectable_total", "uncollectable", "Objects that it could not free."),
        ):
            out.family(name, "counter", help, [(labels, found[key]) for labels, found in stats])

    def _kafka_gateway(self, out: Exposition) -> None:
        counters = self._kafka.counters
        requests: dict[str, int] = {}
        for key, count in counters.requests_by_api.items():
            # A client can send any number as an API key; only those of the protocol become labels.
            name = APIS[key].name if key in APIS else _UNKNOWN_API
            requests[name] = requests.get(name, 0) + count
        known = {code.value: code.name for code in ErrorCode}
        for name, kind, help, value in (
            ("connections_open", "gauge", "Connections that are open.", counters.connections_open),
            ("connections_total", "counter", "Connections that were made.", counters.connections_total),
            ("connections_refused_total", "counter", "Refused above the cap.", counters.connections_refused),
            ("received_bytes_total", "counter", "Bytes from clients.", counters.bytes_in),
            ("sent_bytes_total", "counter", "Bytes to clients.", counters.bytes_out),
            ("frames_in_flight_bytes", "gauge", "Requests in memory.", self._kafka.frames_in_flight_bytes),
            ("handler_failures_total", "counter", "Requests that failed unexpectedly.", counters.handler_failures),
        ):
            out.one(f"headrace_kafka_{name}", kind, help, value)
        out.family(
            "headrace_kafka_connections_closed_total",
            "counter",
            "Connections closed for what the client did.",
            by_label("reason", counters.connections_closed_for_cause),
        )
        out.family("headrace_kafka_requests_total", "counter", "Requests by API.", by_label("api", requests))
        out.family(
            "headrace_kafka_errors_total",
            "counter",
            "Errors in answers, one for each topic or partition that has one.",
            by_label("error", {known.get(code, str(code)): n for code, n in counters.errors_by_code.items()}),
        )

    def _http_gateway(self, out: Exposition) -> None:
        counters = self._http
        for name, kind, help, value in (
            ("connections_open", "gauge", "Connections that are open.", counters.connections_open),
            ("connections_total", "counter", "Connections that were made.", counters.connections_total),
            ("connections_refused_total", "counter", "Refused above a cap.", counters.connections_refused),
            ("received_bytes_total", "counter", "Bytes from clients.", counters.bytes_in),
            ("sent_bytes_total", "counter", "Bytes to clients.", counters.bytes_out),
            ("handler_failures_total", "counter", "Requests that failed unexpectedly.", counters.handler_failures),
        ):
            out.one(f"headrace_http_{name}", kind, help, value)
        out.family(
            "headrace_http_connections_closed_total",
            "counter",
            "Connections ended for what the client did.",
            by_label("code", counters.closed_for_cause),
        )
        answers = [
            ({"route": route, "status": str(status)}, n) for (route, status), n in sorted(counters.requests.items())
        ]
        out.family("headrace_http_requests_total", "counter", "Requests by route and status.", answers)

    def _answer_budget(self, out: Exposition) -> None:
        answers = self._answers
        for name, kind, help, value in (
            (
                "held_bytes",
                "gauge",
                "Memory of answers that are being made or that clients have not taken.",
                answers.used_bytes,
            ),
            ("waiting", "gauge", "Requests that wait for memory for their answers.", answers.waiting_count),
            ("waited_total", "counter", "Requests that had to wait for it.", answers.waited_count),
            ("refused_total", "counter", "Requests that had waited for too long.", answers.refused_count),
        ):
            out.one(f"headrace_answers_{name}", kind, help, value)

    def _log_store(self, out: Exposition, sums: Mapping[str, TopicSum]) -> None:
        logs, stats = self._logs, self._logs.committer.stats
        size_bytes = sum(found.size_bytes for found in sums.values())
        damaged = len(logs.damage.among(logs.logs.values()))
        for name, kind, help, value in (
            ("journal_syncs_total", "counter", "Syncs of the shared journal.", stats.journal_syncs),
            ("journal_bytes_total", "counter", "Bytes written to the shared journal.", stats.journal_bytes),
            ("segment_syncs_total", "counter", "Syncs of segment files.", stats.segment_syncs),
            ("sync_failures_total", "counter", "Syncs that failed; each takes partitions offline.", stats.failures),
            ("open_files", "gauge", "Segment files that are open.", len(logs.files)),
            ("partitions", "gauge", "Partitions on this node.", len(logs.logs) + len(logs.refused)),
            ("partitions_offline", "gauge", "Of these, how many are offline.", len(offline_partitions(logs))),
            ("partitions_damaged", "gauge", "How many are served but for damage that readers met.", damaged),
            ("size_bytes", "gauge", "Bytes in segment files.", size_bytes),
            ("disk_free_bytes", "gauge", "Free space where the data is.", self._broker.disk_free_bytes()),
            ("disk_reserve_reached", "gauge", "1 while sends are refused for lack of space.", int(logs.is_full)),
        ):
            out.one(f"headrace_log_{name}", kind, help, value)
        kinds = {"cleaning": logs.cleaner.cleaning, "compaction": logs.cleaner.compaction}
        for name, kind, field, help in (
            ("passes_total", "counter", "passes", "Passes that rewrote segments."),
            ("read_bytes_total", "counter", "bytes_before", "Bytes of the segments that were rewritten."),
            ("kept_bytes_total", "counter", "bytes_after", "Bytes of what took their place."),
            ("last_seconds", "gauge", "last_seconds", "How long the last pass took, pauses included."),
        ):
            samples = by_label("kind", {label: getattr(found, field) for label, found in kinds.items()})
            out.family(f"headrace_log_clean_{name}", kind, help, samples)
        out.histogram(
            "headrace_log_sync_seconds",
            "How long appends waited for a sync, from its request to its result.",
            [({"lane": "journal"}, stats.journal_time), ({"lane": "segment"}, stats.segment_time)],
        )

    def _topics(self, out: Exposition, sums: Mapping[str, TopicSum]) -> None:
        out.one("headrace_topics", "gauge", "Topics with a partition on this node.", len(sums))
        shown = with_own_series(sums)
        for name, field, help in (
            ("partitions", "partitions", "Partitions on this node."),
            ("end_offset", "end_offset", "End offsets of its partitions, added up; the rate is messages per second."),
            ("size_bytes", "size_bytes", "Bytes in its segment files."),
        ):
            samples = by_label("topic", {topic: getattr(found, field) for topic, found in shown.items()})
            out.family(f"headrace_topic_{name}", "gauge", help, samples)
