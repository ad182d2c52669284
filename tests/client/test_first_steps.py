"""What a new user meets first: names, addresses, a node that is not up, a topic that is not a queue."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import RunningNode, clean_environment
from tests.client.fake_node import fake_node
from tests.client.serving import serving_fake
from tests.support.node import free_port
from tests.support.wait import wait_until

import headrace
from headrace.model.errors import InvalidRequestError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]


def free_address() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


# Names.


def test_the_package_lists_its_names_and_type_checkers_see_the_same_ones() -> None:
    listed = dir(headrace)
    assert {"Client", "worker", "StreamClient"} <= set(listed)
    assert listed == sorted(set(listed))
    stub = (ROOT / "src" / "headrace" / "__init__.pyi").read_text()
    assert sorted([*re.findall(r"as (\w+)$", stub, re.MULTILINE), "__version__"]) == listed
    assert all(getattr(headrace, name) is not None for name in listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_document_takes_from_the_package_is_there(page: Path) -> None:
    text = page.read_text()
    names = set(re.findall(r"\bheadrace\.([A-Z]\w+|worker)\b", text))
    # Errors that the documents name without their package; those of Python and of PySpark are not ours.
    if page.name == "client.md":
        names |= set(re.findall(r"`(\w+Error)\b", text)) - {"CancelledError"}
    assert sorted(name for name in names if name not in dir(headrace)) == []


# Addresses.


def test_clients_take_the_address_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_fake() as node:
        monkeypatch.setenv("HEADRACE_HTTP", f"{free_address()},{node.server}")
        with headrace.Client() as client:
            client.queue("tasks").send("tea")

        async def describe() -> list[str]:
            async with headrace.AsyncClient() as other:
                return await other.queues()

        assert asyncio.run(describe()) == ["tasks"]
        monkeypatch.setenv("HEADRACE_HTTP", free_address())
        with headrace.Client(node.server) as client:
            assert client.queues() == ["tasks"]


def test_a_stream_client_takes_the_address_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, node: RunningNode
) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", node.server)

    async def main() -> int:
        async with headrace.StreamClient() as client:
            return len((await client.admin.cluster()).brokers)

    assert asyncio.run(main()) == 1


# A node that is not up.


def outages(log: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in log.records if record.name == "headrace.client"]


def test_a_client_that_finds_no_node_says_so_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with fake_node() as node:
            address = free_address()
            client = headrace.AsyncClient(address)
            sends = [asyncio.create_task(client.queue(name).send("tea")) for name in ("a", "b")]
            while not outages(caplog):  # noqa: ASYNC110 - the log sets no event
                await asyncio.sleep(0.01)
            host, _, port = address.partition(":")
            server = await asyncio.start_server(node.accept, host, int(port))
            node.address = type(node.address)(host, int(port))
            async with server:
                await asyncio.gather(*sends)
                await client.close()
                await node.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert [record.getMessage() for record in outages(caplog)] == [
        "no node can be reached; trying again",
        "a node can be reached again",
    ]
    assert "cannot be reached" in vars(outages(caplog)[0])["reason"]


def test_a_stream_client_that_finds_no_node_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        client = headrace.StreamClient(free_address())
        asking = asyncio.create_task(client.admin.cluster())
        while not outages(caplog):  # noqa: ASYNC110 - the log sets no event
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await client.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(outages(caplog)) == 1


def test_a_program_without_logging_sees_on_its_standard_error_that_no_node_is_there() -> None:
    program = f"import headrace; headrace.Client({free_address()!r}).queue('tasks').send('tea')"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    assert process.stderr is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(process.stderr.readline()), daemon=True)  # type: ignore[union-attr]
    try:
        reader.start()
        wait_until(lambda: bool(lines), deadline_s=25, what="a line before the call gives up after 30 seconds")
        assert process.poll() is None
        assert "no node can be reached; trying again" in lines[0]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


# Mistakes.


@pytest.mark.parametrize("given", ["tea", b"tea", {"tea": 1}, headrace.OutgoingMessage(body="tea"), 7, None], ids=repr)
def test_what_is_not_several_messages_is_refused_by_send_many(given: Any) -> None:
    with serving_fake() as node, headrace.Client(node.server) as client:
        with pytest.raises(InvalidRequestError, match="send_many takes a list of messages, not one"):
            client.queue("tasks").send_many(given)
        with client.transaction() as tx, pytest.raises(InvalidRequestError, match="send_many takes a list"):
            tx.queue("tasks").send_many(given)
        assert node.ask(lambda fake: fake.of("POST /queues")) == []


def test_a_topic_says_to_a_client_that_it_is_not_a_queue_and_how_it_becomes_one(node: RunningNode) -> None:
    async def produce() -> None:
        async with headrace.StreamClient(node.server) as streams:
            await streams.admin.create_topic("clicks")
            await streams.produce("clicks", [headrace.Outgoing(b"one")])

    asyncio.run(produce())
    with headrace.Client(node.ready["http"]) as client:
        clicks = client.queue("clicks")
        for call in (clicks.describe, clicks.receive, clicks.browse, lambda: clicks.send("two")):
            with pytest.raises(headrace.NotAQueueError) as refused:
                call()
            assert str(refused.value).startswith(
                'clicks is a topic and not a queue; client.queue("clicks").create(convert=True) makes it one'
            )
        with pytest.raises(headrace.TopicHasRecordsError, match=r"holds 1 record,.*call create\(convert=True\)"):
            clicks.create()
        clicks.create(convert=True)
        assert [message.text for message in clicks.receive(wait=5)] == ["one"]
