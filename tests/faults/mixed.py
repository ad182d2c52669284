"""A mixed load on one node, by clients of every kind at once, and its verdict."""

import threading
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults import queue_load, stream_load
from tests.faults.checker import Verdict, check
from tests.faults.client import LoadClient
from tests.faults.history import History, Topic
from tests.support.node import NodeProcess, free_port
from tests.support.wait import wait_until

IDEMPOTENT = Topic(name="idempotent", idempotent=True)
TRANSACTIONAL = Topic(name="transactional", idempotent=True)
TOPICS = (IDEMPOTENT, TRANSACTIONAL)

# Small files, so that a short run rolls segments, is cleaned and takes checkpoints many times.
SMALL = {
    "log.journal_bytes": 1024 * 1024,
    "log.checkpoint_bytes": 256 * 1024,
    "log.maintenance_interval_ms": 200,
    "log.clean_active_bytes": 256 * 1024,
    "queues.keep_interval_ms": 200,
}
SEGMENT_BYTES = 512 * 1024


class MixedLoad:
    """Goes from `start` to `verdict`, through everything that a test does to the node in between.

    The node has to keep its addresses: `http` is where it listens for HTTP (`addresses` gives one to start it with).
    """

    def __init__(self, node: NodeProcess, http: str, *, seed: int) -> None:
        self.history = History(queues=queue_load.QUEUES, topics=TOPICS)
        self._node = node
        self._http = http
        self._seed = seed
        self._stop_sending = threading.Event()
        self._stop_working = threading.Event()
        self._senders: list[LoadClient] = []
        self._workers: list[LoadClient] = []

    def start(self) -> None:
        self._make_places()
        history, stop, server = self.history, self._stop_sending, self._node.server
        self._senders += [
            stream_load.IdempotentSender(f"i{number}", server, IDEMPOTENT.name, history, stop, self._seed + number)
            for number in range(2)
        ]
        self._senders.append(
            stream_load.TransactionalSender("t0", server, TRANSACTIONAL.name, history, stop, self._seed + 2)
        )
        for topic in TOPICS:
            name = f"follower of {topic.name}"
            self._workers.append(stream_load.Follower(name, server, topic.name, history, self._stop_working))
        for queue in queue_load.QUEUES:
            label = queue.name.partition(".")[0]
            for number in range(2):
                self._senders.append(queue_load.Sender(f"{label}-s{number}", queue, self._http, history, stop))
                seed = self._seed + 10 + number
                self._workers.append(
                    queue_load.Worker(f"{label}-w{number}", queue, self._http, history, self._stop_working, seed)
                )
        for client in (*self._senders, *self._workers):
            client.start()

    def wait_progress(self, count: int, *, deadline_s: float = 60.0) -> None:
        """Until so many more calls are answered with success: the clients are connected and the node works."""
        target = self.history.count() + count
        wait_until(
            lambda: self.history.count() >= target or bool(self.history.trouble),
            deadline_s=deadline_s,
            what=lambda: f"{count} more answers; the node said:\n{self._node.log_text()[-3000:]}",
        )

    def wait_transaction(self, *, deadline_s: float = 60.0) -> None:
        """Until one more transaction has ended. Its client takes longest to find a node that came back."""
        target = self.history.ended_count() + 1
        wait_until(
            lambda: self.history.ended_count() >= target or bool(self.history.trouble),
            deadline_s=deadline_s,
            what=lambda: f"the end of a transaction; the node said:\n{self._node.log_text()[-3000:]}",
        )

    def stop(self) -> None:
        """Send no more, wait for what is in flight, and let the workers go home."""
        self._stop_sending.set()
        for client in self._senders:
            client.join()
        self._stop_working.set()
        for client in self._workers:
            client.join()

    def leave_messages(self, count: int) -> None:
        """Have each queue hold so many messages, in the end."""
        for queue in queue_load.QUEUES:
            queue_load.leave(queue, self._http, self.history, count)

    def verdict(self) -> Verdict:
        return judge(self.history, self._node.server, self._http)

    def _make_places(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._node.server, "log_level": 0})
        topics = [
            NewTopic(topic.name, stream_load.PARTITIONS, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
            for topic in TOPICS
        ]
        for made in admin.create_topics(topics).values():
            made.result(10)
        for queue in queue_load.QUEUES:
            queue_load.open_door(queue, self._http).make()


def address() -> str:
    """An address for a node's HTTP that it keeps over restarts."""
    return f"127.0.0.1:{free_port()}"


def judge(history: History, server: str, http: str, *, is_hopeless: Callable[[], bool] = lambda: False) -> Verdict:
    """Read and work off what a node has, and compare it with what clients were told."""
    for topic in TOPICS:
        stream_load.read_all(server, topic.name, history, is_hopeless=is_hopeless)
    for queue in queue_load.QUEUES:
        queue_load.work_off(queue, http, history, is_hopeless=is_hopeless)
    return check(history)
