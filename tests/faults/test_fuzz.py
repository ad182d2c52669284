"""Both ports take spoilt requests without end, beside clients that notice nothing of it.

The requests are what real clients said to another node, recorded by a tap and spoilt. HEADRACE_LONG=1 goes on for
minutes, and HEADRACE_TEST_SEED repeats a run's choices.
"""

import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import boto3
import psutil
import pytest
import urllib3
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from tests.compat.clients.every import CLIENTS
from tests.compat.clients.message import Message
from tests.compat.clients.transactional import ConfluentTransactional
from tests.faults.mixed import SMALL, MixedLoad, address
from tests.faults.mutation import spoil, spoil_frame
from tests.faults.tap import Tap, http_requests, kafka_frames
from tests.support.node import free_port, running

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
ATTACK_S = 600.0 if IS_LONG else 8.0
ATTACKERS = 3  # for each port
GROWTH_BYTES_MAX = 512 * 1024 * 1024
_ANSWER_S = 0.02
TOPIC = "recorded"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], list[bytes]]:
    """What clients of many kinds say: Kafka frames and HTTP requests."""
    tap_port = free_port()
    arguments = ["--advertise", f"127.0.0.1:{tap_port}"]
    with running(tmp_path_factory.mktemp("corpus") / "data", arguments=arguments) as node:
        with Tap(node.server, port=tap_port) as kafka, Tap(node.http) as http:
            speak_kafka(kafka.address)
            speak_http(http.address)
        frames = [frame for said in kafka.said for frame in kafka_frames(said)]
        requests = [request for said in http.said for request in http_requests(said)]
    assert len(frames) > 100
    assert len(requests) > 20
    return frames, requests


def speak_kafka(server: str) -> None:
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
    admin.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result(10)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    admin.describe_configs([resource])[resource].result(10)
    for client in CLIENTS:
        client.write(server, TOPIC, [Message(value=b"x" * 50, key=b"k")] * 5, codec="none")
        client.read(server, TOPIC)
    producer = ConfluentTransactional(server, "recorded")
    producer.begin()
    producer.send(TOPIC, b"in a transaction")
    producer.send_offsets("recorded", {(TOPIC, 0): 1})
    producer.commit()
    producer.close()
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": server, "group.id": f"recorded-{protocol}", "group.protocol": protocol}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 0})
        consumer.subscribe([TOPIC])
        for _ in range(30):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
                break
        consumer.close()
    admin.list_consumer_groups().result(10)
    admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()})[TopicPartition(TOPIC, 0)].result(10)
    admin.delete_topics([TOPIC])[TOPIC].result(10)


def speak_http(server: str) -> None:
    def ask(method: str, target: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        headers = {} if body is None else {"content-type": kind}
        url = f"http://{server}{target}"
        return urllib3.request(method, url, body=body, headers=headers, retries=False, timeout=10.0).data

    queue = "/queues/recorded"
    ask("PUT", queue, b'{"config": {"lease": 30.0, "ordered": true}, "partitions": 2}')
    ask("POST", f"{queue}/messages", b'{"message": {"a": [1, 2.5, null]}, "priority": 9, "delay": 0.1, "key": "k"}')
    ask("POST", f"{queue}/messages", b'{"messages": [{"message": "a", "headers": {"h": "v"}}], "request_id": "r"}')
    ask("POST", f"{queue}/messages?priority=3", b"\x00\x01raw", "application/octet-stream")
    receipt = (
        ask("GET", f"{queue}/messages?batch_size=10&wait=1").partition(b'"receipt_handle":"')[2].partition(b'"')[0]
    )
    ask("PATCH", f"{queue}/messages/{receipt.decode()}", b'{"lease": 60}')
    ask("POST", f"{queue}/releases", b'{"releases": [{"receipt_handle": "%s", "delay": 5}]}' % receipt)
    ask("POST", f"{queue}/acknowledgements", b'{"receipt_handles": ["%s"]}' % receipt)
    for target in (
        queue,
        f"{queue}/browse?limit=5",
        f"{queue}/explain?key=k",
        "/queues?limit=3",
        "/health",
        "/metrics",
    ):
        ask("GET", target)
    ask("POST", f"{queue}/redrives", b'{"filter": {"reason": "rejected"}, "rate": 5}')
    ask("POST", "/transactions", b'{"timeout": 5}')
    ask("POST", f"{queue}/purge")
    session = boto3.session.Session()
    client = session.client(
        "sqs",
        endpoint_url=f"http://{server}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    url = client.create_queue(QueueName="recorded-sqs")["QueueUrl"]
    url = url.replace(url.split("/")[2], server)
    client.send_message(QueueUrl=url, MessageBody="one", DelaySeconds=1)
    client.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "two"}])
    client.receive_message(QueueUrl=url, WaitTimeSeconds=1, MaxNumberOfMessages=10)
    client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    ask("POST", "/", b"Action=ListQueues&QueueNamePrefix=r", "application/x-www-form-urlencoded")


class Attacker:
    """Sends spoilt requests over connections of its own until it is told to stop."""

    def __init__(
        self,
        server: str,
        corpus: Sequence[bytes],
        spoil_one: Callable[[bytes, random.Random], bytes],
        stop: threading.Event,
        seed: int,
    ) -> None:
        host, _, port = server.rpartition(":")
        self._address = (host, int(port))
        self._corpus = corpus
        self._spoil = spoil_one
        self._stop = stop
        self._chance = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(self._address, timeout=5.0) as connection:
                    connection.settimeout(_ANSWER_S)
                    self._attack(connection)
            except OSError:
                self.seen["broken"] += 1

    def _attack(self, connection: socket.socket) -> None:
        for _ in range(self._chance.randint(1, 4)):
            # Some of what came before is sound, so that a spoilt request meets a connection in any state.
            request = self._chance.choice(self._corpus)
            connection.sendall(request if self._chance.random() < 0.2 else self._spoil(request, self._chance))
            self.seen["sent"] += 1
            with suppress(TimeoutError):
                if not connection.recv(65_536):
                    self.seen["closed"] += 1
                    return
                self.seen["answered"] += 1


@pytest.mark.timeout(1200 if IS_LONG else 240)
def test_spoilt_requests_harm_neither_the_node_nor_its_other_clients(
    corpus: tuple[list[bytes], list[bytes]], tmp_path: Path
) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    frames, requests = corpus
    http = address()
    with running(tmp_path / "data", settings=SMALL, arguments=["--http", http]) as node:
        load = MixedLoad(node, http, seed=SEED)
        load.start()
        stop = threading.Event()
        attackers = [Attacker(node.server, frames, spoil_frame, stop, SEED + n) for n in range(ATTACKERS)]
        attackers += [Attacker(http, requests, spoil, stop, SEED + 100 + n) for n in range(ATTACKERS)]
        try:
            load.wait_progress(50)
            before = psutil.Process(node.pid).memory_info().rss
            for attacker in attackers:
                attacker.start()
            time.sleep(ATTACK_S)  # how long the attack lasts, not a synchronisation
            load.wait_progress(50)
            growth = psutil.Process(node.pid).memory_info().rss - before
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join()
            load.stop()
        verdict = load.verdict()
        kafka = sum((one.seen for one in attackers[:ATTACKERS]), Counter[str]())
        web = sum((one.seen for one in attackers[ATTACKERS:]), Counter[str]())
        errors = [line for line in node.log_lines() if line["level"] in ("error", "critical")]
        print(f"Kafka: {dict(kafka)}; HTTP: {dict(web)}; the node grew by {growth // 1024**2} MiB\n{verdict}")
        assert node.exit_code() is None
        assert not errors, errors[:3]
        assert not verdict.violations, str(verdict)
        assert kafka["answered"] > 0
        assert web["answered"] > 0
        assert growth < GROWTH_BYTES_MAX
