"""`headrace worker` in processes of their own, against a real node."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import HEADRACE, RunningNode, clean_environment, running_node
from tests.client.fake_node import Fault
from tests.client.serving import serving_fake
from tests.support.node import free_port
from tests.support.wait import wait_until

import headrace

DEADLINE_S = 30.0

# Handlers tell of each call in a file, by one small append, which the kernel does not split.
MODULE = """
import asyncio
import os
import time

import headrace


def note(line):
    fd = os.open("notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{line}\\n".encode())
    os.close(fd)


@headrace.worker("to be named", concurrency=4, lease=2)
def handle(message):
    note(f"{message.text} {message.attempt}")
    if message.text == "fails" and message.attempt == 1:
        raise headrace.Retry(0)
    if message.text == "breaks":
        raise ValueError("the pot has no lid")
    if message.text == "rejects":
        raise headrace.Reject("no such tea")
    if message.text == "slow":
        while not os.path.exists("go"):
            time.sleep(0.01)
        note("slow ends")


async def plain(message):
    await asyncio.sleep(0)
    note(f"{message.text} {message.attempt}")


async def stubborn(message):
    note("begins")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            note("told to end")


not_a_function = 7
"""


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.removeprefix("test_").replace("_", "-")[:100]


@pytest.fixture
def client(node: RunningNode) -> Iterator[headrace.Client]:
    with headrace.Client(node.ready["http"]) as opened:
        yield opened


class Shop:
    """A directory with a handler's module, and what its handlers noted."""

    def __init__(self, path: Path, server: str) -> None:
        self.path = path
        self.server = server
        (path / "teashop.py").write_text(MODULE)
        (path / "kitchen.py").write_text("\nopen('missing.toml')\n")
        (path / "cellar.py").write_text("import headrace\nheadrace.worker('orders', concurrency=0)\n")

    def notes(self) -> list[str]:
        file = self.path / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def wait_noted(self, *expected: str) -> None:
        wait_until(
            lambda: set(expected) <= set(self.notes()),
            deadline_s=DEADLINE_S,
            what=lambda: f"{expected} noted; so far {self.notes()}, said {self.said()}",
        )

    def said(self) -> str:
        return (self.path / "said").read_text()

    def command(self, *arguments: str) -> list[str]:
        return [*HEADRACE, "worker", *arguments, "--http", self.server]

    @contextmanager
    def working(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        with (self.path / "said").open("ab") as said:
            process = subprocess.Popen(
                self.command(*arguments), cwd=self.path, stdout=said, stderr=said, env=clean_environment()
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_S)


@pytest.fixture
def shop(tmp_path: Path, node: RunningNode) -> Shop:
    return Shop(tmp_path, node.ready["http"])


def test_a_worker_handles_messages_and_stops_when_asked(client: headrace.Client, shop: Shop, queue: str) -> None:
    orders = client.queue(queue)
    orders.send_many(["tea", "fails", "rejects"])
    with shop.working("teashop:handle", "--queue", queue) as process:
        shop.wait_noted("tea 1", "fails 2", "rejects 1")
        wait_until(lambda: orders.describe().counts.acknowledged >= 2, deadline_s=DEADLINE_S, what="acknowledged")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert sorted(shop.notes()) == ["fails 1", "fails 2", "rejects 1", "tea 1"]


def test_a_dead_lettered_message_says_what_its_worker_raised_and_the_browse_table_shows_it(
    client: headrace.Client, shop: Shop, queue: str
) -> None:
    orders = client.queue(queue)
    orders.create(max_deliveries=2, history=60)
    (sent,) = orders.send_many(["breaks"])
    dead = client.queue(f"{queue}-dead")
    with shop.working("teashop:handle", "--queue", queue):
        wait_until(
            lambda: orders.describe().counts.dead_lettered == 1, deadline_s=DEADLINE_S, what="it is dead-lettered"
        )
    (letter,) = dead.browse().messages
    headers = dict(letter.headers)
    assert headers["headrace-dead-error"] == b"ValueError: the pot has no lid"
    assert headers["headrace-dead-reason"] == b"delivered 2 times without an acknowledgement"
    assert headers["headrace-dead-source"] == queue.encode()

    def said(*arguments: str) -> str:
        command = [*HEADRACE, "queue", *arguments, "--http", shop.server]
        return subprocess.run(
            command,
            capture_output=True,
            check=True,
            text=True,
            timeout=DEADLINE_S,
            env={**os.environ, "COLUMNS": "400"},
        ).stdout

    shown = said("browse", dead.name)
    assert "ValueError: the pot has no lid" in shown
    assert queue[:20] in shown, "where it came from, though the table breaks a long name"
    explained = json.loads(said("explain", queue, "--id", sent.id, "--json"))
    assert explained["state"] == "dead_lettered"
    assert f"queue {dead.name} has it" in explained["text"]


def test_a_plain_function_is_a_handler_where_a_queue_is_named(client: headrace.Client, shop: Shop, queue: str) -> None:
    client.queue(queue).send("tea")
    with shop.working("teashop:plain", "-q", queue, "-c", "2", "--log-format", "json") as process:
        shop.wait_noted("tea 1")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert '"worker started"' in shop.said()


def test_a_stop_waits_for_a_handler_and_gives_back_what_was_taken_ahead(
    client: headrace.Client, shop: Shop, queue: str
) -> None:
    orders = client.queue(queue)
    orders.send_many(["slow", "waits"])
    with shop.working("teashop:handle", "--queue", queue, "-c", "1", "--prefetch", "1") as process:
        shop.wait_noted("slow 1")
        wait_until(lambda: orders.describe().counts.leased == 2, deadline_s=DEADLINE_S, what="both are taken")
        process.send_signal(signal.SIGTERM)
        (again,) = orders.receive(wait=20)
        assert (again.text, again.attempt) == ("waits", 1)
        again.ack()
        (shop.path / "go").touch()
        assert process.wait(DEADLINE_S) == 0
    assert shop.notes() == ["slow 1", "slow ends"]
    assert orders.describe().counts.acknowledged == 2


def test_a_handler_that_does_not_finish_within_the_grace_is_left_behind(
    client: headrace.Client, shop: Shop, queue: str
) -> None:
    orders = client.queue(queue)
    orders.send("slow")
    with shop.working("teashop:handle", "--queue", queue, "--grace", "100ms") as process:
        shop.wait_noted("slow 1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 1
    assert "given back" in shop.said()
    (again,) = orders.receive(wait=20)
    assert again.attempt == 2
    again.ack()


def test_a_handler_that_does_not_heed_its_end_does_not_keep_the_worker(
    client: headrace.Client, shop: Shop, queue: str
) -> None:
    client.queue(queue).send("tea")
    with shop.working("teashop:stubborn", "--queue", queue, "--grace", "1h") as process:
        shop.wait_noted("begins")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "worker stops" in shop.said(), deadline_s=DEADLINE_S, what="the first signal is heard")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 1
    assert "told to end" in shop.notes()


def test_a_node_that_is_silent_does_not_keep_a_worker_that_was_told_to_stop_twice(tmp_path: Path) -> None:
    with serving_fake() as node:
        shop = Shop(tmp_path, node.server)
        node.ask(lambda fake: fake.make("orders").send({"body": b"slow"}))
        with shop.working("teashop:handle", "--queue", "orders", "--lease", "1h", "--grace", "1h") as process:
            shop.wait_noted("slow 1")
            node.ask(lambda fake: fake.faults.extend([(".", Fault.SILENCE)] * 100))
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: "worker stops" in shop.said(), deadline_s=DEADLINE_S, what="the first signal is heard")
            process.send_signal(signal.SIGTERM)
            # Sooner than the client gives up what it asks of the node.
            assert process.wait(20) == 1


def test_a_worker_waits_for_a_node_that_is_not_up_yet(tmp_path: Path) -> None:
    # Not one that the worker's own attempts to connect could be given, as the kernel's free ports are.
    address_text = f"127.0.0.1:{free_port()}"
    shop = Shop(tmp_path, address_text)
    with shop.working("teashop:handle", "--queue", "tasks"):
        wait_until(lambda: "no node can be reached" in shop.said(), deadline_s=DEADLINE_S, what="the worker says so")
        with running_node(tmp_path / "data", "--http", address_text), headrace.Client(address_text) as client:
            client.queue("tasks").send("tea")
            shop.wait_noted("tea 1")


def test_a_worker_of_a_topic_ends_and_shows_the_command_that_makes_it_a_queue(node: RunningNode, shop: Shop) -> None:
    subprocess.run([*HEADRACE, "topic", "create", "clicks", "--server", node.server], check=True, timeout=DEADLINE_S)
    with shop.working("teashop:handle", "--queue", "clicks") as process:
        assert process.wait(DEADLINE_S) == 1
    assert "clicks is a topic and not a queue; `headrace queue create clicks` makes it one" in shop.said()


def test_the_messages_of_a_worker_that_was_killed_come_to_another_one(
    client: headrace.Client, shop: Shop, queue: str
) -> None:
    orders = client.queue(queue)
    orders.send("slow")
    with shop.working("teashop:handle", "--queue", queue, "--lease", "1s") as process:
        shop.wait_noted("slow 1")
        # Longer than its lease: it is extended while the handler runs.
        assert orders.receive(wait=1.5) == []
        os.kill(process.pid, signal.SIGKILL)
        (shop.path / "go").touch()
        with shop.working("teashop:handle", "--queue", queue):
            shop.wait_noted("slow 2")
            wait_until(lambda: orders.describe().counts.acknowledged == 1, deadline_s=DEADLINE_S, what="done")
    assert orders.receive(wait=0) == []


def test_a_receiver_that_follows_prints_what_comes_and_ends_with_0_at_ctrl_c(
    client: headrace.Client, node: RunningNode, queue: str, tmp_path: Path
) -> None:
    orders = client.queue(queue)
    orders.send("first")
    command = [*HEADRACE, "receive", queue, "--follow", "--http", node.ready["http"]]
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, env=clean_environment())
    try:
        wait_until(lambda: out.read_text() == "first\n", deadline_s=DEADLINE_S, what="the first is printed")
        orders.send("second")
        wait_until(lambda: orders.describe().counts.acknowledged == 2, deadline_s=DEADLINE_S, what="both are done")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, errors) == (0, b"")
        assert out.read_text() == "first\nsecond\n"
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def test_a_receiver_that_is_interrupted_before_its_call_begins_says_nothing(node: RunningNode, queue: str) -> None:
    program = (
        "from headrace.client.portal import BackgroundLoop\n"
        "from headrace.cli.main import main\n"
        "run = BackgroundLoop.run\n"
        "def interrupted(self, work):\n"
        "    if work.__name__ == 'receive':\n"
        "        raise KeyboardInterrupt\n"
        "    return run(self, work)\n"
        "BackgroundLoop.run = interrupted\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "receive", queue, "--follow", "--http", node.ready["http"]]
    done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_receiver_whose_reader_goes_away_acknowledges_what_was_printed_and_gives_back_the_rest(
    client: headrace.Client, node: RunningNode, queue: str
) -> None:
    orders = client.queue(queue)
    orders.create(lease=3_600)
    # More than a pipe holds.
    orders.send_many([f"{number:03}" + "x" * 10_000 for number in range(50)])
    command = [*HEADRACE, "receive", queue, "--count", "50", "--http", node.ready["http"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment()) as process:
        assert process.stdout is not None
        assert process.stdout.read(3).isdigit()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 1
    counts = orders.describe().counts
    assert counts.leased == 0
    assert 1 <= counts.acknowledged < 50
    left = orders.receive(max=100, wait=5)
    assert len(left) == counts.visible == 50 - counts.acknowledged
    assert {message.attempt for message in left} == {1}
    orders.acknowledge_all(left)


@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        ("teashop:brew", 1, "teashop has no brew"),
        ("kettle:brew", 1, "there is no module kettle"),
        ("teashop:not_a_function", 1, "no function"),
        ("teashop:plain", 1, "--queue"),
        ("teashop", 2, "MODULE:HANDLER"),
        (".teashop:plain", 2, "is no name of a module"),
        ("shops/teashop.py:plain", 2, "a.b for a/b.py"),
        ("teashop.py:plain", 1, "write teashop:plain"),
        ("kitchen:brew", 1, "kitchen.py, line 2: [Errno 2]"),
        ("cellar:brew", 1, "cellar.py, line 2: a worker cannot have this"),
    ],
)
def test_a_handler_that_is_not_there_is_said_in_a_sentence(shop: Shop, handler: str, code: int, words: str) -> None:
    done = subprocess.run(
        shop.command(handler), cwd=shop.path, capture_output=True, timeout=60, env=clean_environment()
    )
    assert done.returncode == code
    # Wrong use is told in a box, whose lines end where the terminal does.
    assert words in " ".join(done.stderr.decode().replace("│", " ").split())
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("--lease", "13h", "43200"), ("--lease", "0", "lease_s"), ("--queue", "two words", "letters, digits")],
)
def test_a_worker_that_cannot_be_is_wrong_use(shop: Shop, option: str, value: str, words: str) -> None:
    command = [*shop.command("teashop:handle"), "--queue", "orders", option, value]
    done = subprocess.run(command, cwd=shop.path, capture_output=True, timeout=60, env=clean_environment())
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr
