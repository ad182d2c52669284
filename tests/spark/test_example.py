"""The example for newcomers, run as its README says: its own files, its own commands, a node of its own."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.node import HEADRACE, NodeProcess, environment, running
from tests.support.wait import wait_until

from headrace.client.stream import StreamClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
DEADLINE_S = 200.0
KILL_COUNT = 3 if os.environ.get("HEADRACE_LONG") else 0


class Reader:
    """Somebody who follows the README in a copy of the example's directory."""

    def __init__(self, node: NodeProcess, place: Path) -> None:
        self.node = node
        self.place = place
        self.readme = (EXAMPLE / "README.md").read_text()
        self.environment = environment({"server": node.server, "http": node.http})

    def start(self, command: str, *where: str) -> "subprocess.Popen[bytes]":
        """A command of the README, with where the test's node is."""
        assert f"    {command}" in self.readme
        program, *arguments = command.split()
        programs = {"python": [sys.executable], "headrace": list(HEADRACE)}
        with (self.place / "said.log").open("ab") as log:
            return subprocess.Popen(
                [*programs[program], *arguments, *where],
                cwd=self.place,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, command: str, *where: str) -> None:
        assert self.start(command, *where).wait(DEADLINE_S) == 0, self.said()

    def said(self) -> str:
        return (self.place / "said.log").read_text(errors="replace")[-10_000:]

    def messages(self, topic: str) -> list[dict[str, Any]]:
        async def main() -> list[dict[str, Any]]:
            async with StreamClient(self.node.server) as client:
                positions = await client.start_offsets(await client.partitions(topic))
                ends = await client.end_offsets(positions)
                found: list[dict[str, Any]] = []
                while left := {at: offset for at, offset in positions.items() if offset < ends[at]}:
                    for part in await client.fetch(left):
                        found += [json.loads(message.value or b"") for message in part.messages]
                        positions[part.at] = part.next_offset
                return found

        return asyncio.run(main())


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    place = tmp_path / "orders"
    shutil.copytree(EXAMPLE, place)
    with running(tmp_path / "data") as node:
        yield Reader(node, place)


def test_the_orders_example_ships_each_paid_order_once(reader: Reader) -> None:
    server, http = ("--server", reader.node.server), ("--http", reader.node.http)
    reader.run("python generate.py --orders 500", *server)
    for _ in range(KILL_COUNT):
        kill_in_the_middle(reader, reader.start("python pipeline.py", *server, *http))
    reader.run("python pipeline.py", *server, *http)

    payments = {payment["order"]: payment for payment in reader.messages("payments")}
    products = {order["order"]: order["product"] for order in reader.messages("orders")}
    assert 400 < len(payments) < len(products) == 500

    table = DeltaTable(reader.place / "lake" / "paid_orders").to_pyarrow_table()
    rows = zip(table["order"].to_pylist(), table["cents"].to_pylist(), strict=True)
    assert sorted(rows) == sorted((order, payment["cents"]) for order, payment in payments.items())

    check_revenue(reader, payments, products)
    assert shipped(reader, len(payments)) == Counter(payments.keys())


def check_revenue(reader: Reader, payments: dict[str, Any], products: dict[str, str]) -> None:
    """A minute that is over was sent once, with the right sum. The last few are not over."""
    expected: Counter[tuple[datetime, str]] = Counter()
    for order, payment in payments.items():
        minute = datetime.fromisoformat(payment["at"]).replace(second=0, microsecond=0)
        expected[minute, products[order]] += payment["cents"]
    sent = [(datetime.fromisoformat(one["minute"]), one["product"], one["cents"]) for one in reader.messages("revenue")]
    assert len({minute for minute, _, _ in sent}) >= 10
    assert len({(minute, product) for minute, product, _ in sent}) == len(sent)
    assert all(expected[minute, product] == cents for minute, product, cents in sent)


def shipped(reader: Reader, count: int) -> Counter[str]:
    """What the worker of the example wrote down, of which order."""
    file = reader.place / "shipped.txt"
    worker = reader.start("headrace worker worker:ship")
    try:
        wait_until(
            lambda: file.exists() and len(file.read_text().splitlines()) >= count,
            deadline_s=DEADLINE_S,
            what=lambda: f"{count} orders are shipped; this was said:\n{reader.said()}",
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(DEADLINE_S)
    return Counter(line.split()[0] for line in file.read_text().splitlines())


def kill_in_the_middle(reader: Reader, pipeline: "subprocess.Popen[bytes]") -> None:
    """The driver with its JVM and workers, as soon as one of the queries has planned a batch more than it had."""
    before = len(list(reader.place.glob("checkpoints/*/offsets/[0-9]*")))
    wait_until(
        lambda: len(list(reader.place.glob("checkpoints/*/offsets/[0-9]*"))) > before or pipeline.poll() is not None,
        deadline_s=DEADLINE_S,
        what=lambda: f"a batch is planned; this was said:\n{reader.said()}",
    )
    os.killpg(pipeline.pid, signal.SIGKILL)
    pipeline.wait(DEADLINE_S)
