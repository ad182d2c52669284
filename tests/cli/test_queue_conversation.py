"""The commands about queues against a real node."""

import json
import os
import subprocess
from contextlib import suppress

import pytest
from tests.cli.command import Headrace, check_refusal, json_lines
from tests.cli.running import HEADRACE, RunningNode, clean_environment
from tests.client.serving import serving_fake
from tests.support.wait import wait_until


@pytest.fixture
def queue(topic: str) -> str:
    return topic.replace("_", "-")


def test_a_first_conversation(headrace: Headrace, queue: str) -> None:
    assert f"Sent 1 message to {queue} as 0-0" in headrace("send", queue, "one tea").stderr
    assert headrace("receive", queue).stdout == "one tea\n"
    nothing = headrace("receive", queue)
    assert nothing.stdout == ""
    assert "nothing to receive" in nothing.stderr


def test_lines_are_sent_and_received_as_json_with_everything_about_them(headrace: Headrace, queue: str) -> None:
    sent = headrace(
        *("send", queue, "--key", "alice", "--priority", "7", "-H", "shop=north", "--ttl", "1h", "--json"),
        input="one\ntwo\n",
    )
    assert [place["is_duplicate"] for place in json_lines(sent)] == [False, False]
    received = json_lines(headrace("receive", queue, "--count", "10", "--wait", "5s", "--json"))
    assert [message["body"] for message in received] == ["one", "two"]
    assert [message["id"] for message in received] == [place["id"] for place in json_lines(sent)]
    first = received[0]
    assert (first["key"], first["priority"], first["attempt"]) == ("alice", 7, 1)
    assert first["headers"] == [{"name": "shop", "value": "north"}]
    assert first["receipt_handle"]


def test_bytes_that_are_no_text_are_printed_as_they_are_or_in_base64(headrace: Headrace, queue: str) -> None:
    headrace("send", queue, "-D", r"\0", input=b"\xff\n\x00\xfe\x00")
    assert headrace("receive", queue, "--keys").stdout_bytes == b"\t\xff\n\n"
    assert json_lines(headrace("receive", queue, "--json"))[0]["body_base64"] == "/g=="


def test_a_message_that_is_not_acknowledged_comes_again_when_its_lease_ends(headrace: Headrace, queue: str) -> None:
    headrace("send", queue, "tea")
    assert headrace("receive", queue, "--no-ack", "--lease", "100ms").stdout == "tea\n"
    again = json_lines(headrace("receive", queue, "--wait", "10s", "--json"))
    assert (again[0]["body"], again[0]["attempt"]) == ("tea", 2)


def test_a_text_with_an_id_is_stored_once(headrace: Headrace, queue: str) -> None:
    headrace("send", queue, "tea", "--deduplication-id", "7")
    assert "a duplicate" in headrace("send", queue, "tea", "--deduplication-id", "7").stderr
    assert "one id for many lines" in headrace("send", queue, "--deduplication-id", "7", input="a\n", code=2).stderr


@pytest.mark.parametrize("durability", ["memory", "replicated", None])
def test_a_queue_is_made_with_the_durability_that_is_asked_for(
    headrace: Headrace, queue: str, durability: str | None
) -> None:
    options = () if durability is None else ("--durability", durability)
    made = durability or "fsync"
    assert f"({made})" in headrace("queue", "create", queue, *options).stdout
    assert json.loads(headrace("queue", "describe", queue, "--json").stdout)["durability"] == made
    other = "fsync" if durability == "memory" else "memory"
    assert "durability" in headrace("queue", "create", queue, "--durability", other, code=1).stderr


def test_a_queue_is_made_changed_described_listed_and_deleted(headrace: Headrace, queue: str) -> None:
    settings = ("-s", "lease=1m", "-s", "ordered=true", "-s", "backoff=10s-10m", "-s", "max_deliveries=none")
    assert "with 2 partitions" in headrace("queue", "create", queue, "-p", "2", *settings).stdout
    described = json.loads(headrace("queue", "describe", queue, "--json").stdout)
    config = described["config"]
    assert (config["lease"], config["ordered"], config["max_deliveries"]) == (60, True, None)
    assert config["backoff"] == {"first": 10, "last": 600}
    assert queue in headrace("queue", "create", queue, "-s", "lease=2m", code=1).stderr
    headrace("queue", "create", queue, "-s", "lease=2m", "--if-missing")
    assert "has ttl=12h, lease=30s now" in headrace("queue", "update", queue, "-s", "ttl=12h", "-s", "lease=30s").stdout
    text = headrace("queue", "describe", queue).stdout
    assert "10s-10m" in text
    assert "12h" in text
    headrace("send", queue, "tea")
    (listed,) = json.loads(headrace("queue", "list", "--prefix", queue, "--json").stdout)
    assert (listed["name"], listed["counts"]["visible"]) == (queue, 1)
    assert queue in headrace("queue", "list").stdout
    assert "--yes" in headrace("queue", "delete", queue, code=1).stderr
    headrace("queue", "delete", queue, "--yes")
    assert "no queue" in headrace("queue", "describe", queue, code=1).stderr


def test_queues_are_listed_with_one_request(headrace: Headrace) -> None:
    with serving_fake() as node:
        node.ask(lambda fake: [fake.make(f"cups-{index}") for index in range(30)])
        listed = json.loads(headrace("queue", "list", "--json", "--http", node.server).stdout)
        assert node.ask(lambda fake: [request.path for request in fake.requests]) == ["/queues"]
    assert len(listed) == 30


@pytest.fixture
def stream(headrace: Headrace, queue: str) -> str:
    """A topic that holds two records."""
    headrace("topic", "create", queue)
    headrace("produce", queue, input="one\ntwo\n")
    return queue


@pytest.mark.parametrize(
    "command",
    [
        ("receive",),
        ("send", "tea"),
        ("queue", "describe"),
        ("queue", "browse"),
        ("queue", "explain", "--key", "k"),
        ("queue", "update", "-s", "lease=1m"),
        ("queue", "purge", "--yes"),
        ("queue", "delete", "--yes"),
        ("queue", "readers"),
        ("queue", "redrive"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_command_about_a_topic_shows_the_command_that_converts_it(
    headrace: Headrace, stream: str, command: tuple[str, ...]
) -> None:
    place = 2 if command[0] == "queue" else 1
    refused = headrace(*command[:place], stream, *command[place:], code=1)
    check_refusal(refused, f"{stream} is a topic and not a queue; `headrace queue create {stream}` makes it one")


def test_a_topic_with_records_becomes_a_queue_when_that_is_confirmed(headrace: Headrace, stream: str) -> None:
    refused = headrace("queue", "create", stream, code=1)
    check_refusal(refused, f"{stream} is a topic that holds 2 records, so nothing was changed")
    assert "retention.ms from 604800000 to -1" in refused.stderr
    assert "--convert" in refused.stderr
    assert "with 1 partition" in headrace("queue", "create", stream, "--convert").stdout
    assert headrace("receive", stream, "--count", "9").stdout == "one\ntwo\n"


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_before_a_topic_with_records_becomes_a_queue(
    headrace: Headrace, node: RunningNode, stream: str, answer: str
) -> None:
    ours, theirs = os.openpty()
    command = [*HEADRACE, "queue", "create", stream, "--http", node.ready["http"]]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=clean_environment())
    try:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        assert b"is a topic that holds 2 records" in said
        os.write(ours, answer.encode() + b"\n")
        with suppress(OSError):  # the other side is closed
            while data := os.read(ours, 4096):
                said += data
        assert process.wait(30) == (0 if answer == "y" else 1), said
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    headrace("queue", "describe", stream, code=0 if answer == "y" else 1)


def test_a_topic_without_records_becomes_a_queue_at_once(headrace: Headrace, queue: str) -> None:
    headrace("topic", "create", queue)
    headrace("queue", "create", queue)


def test_a_description_names_the_queue_that_gets_dead_letters(headrace: Headrace, queue: str) -> None:
    headrace("queue", "create", queue)
    text = headrace("queue", "describe", queue).stdout
    assert "1 partition, durability fsync" in text
    assert f"{queue}-dead (by default)" in text
    headrace("queue", "update", queue, "-s", "max_deliveries=none")
    assert f"{queue}-dead" not in headrace("queue", "describe", queue).stdout


def test_deleting_at_the_public_address_says_where_the_other_one_is(
    headrace: Headrace, queue: str, node: RunningNode
) -> None:
    headrace("queue", "create", queue)
    refused = headrace("queue", "delete", queue, "--yes", "--admin", node.ready["http"], code=1)
    assert node.ready["admin"] in refused.stderr


def test_messages_are_looked_at_explained_and_purged(headrace: Headrace, queue: str) -> None:
    headrace("send", queue, "now\nand here")
    headrace("send", queue, "later", "--delay", "1d", "--key", "k")
    states = [message["state"] for message in json_lines(headrace("queue", "browse", queue, "--json"))]
    assert states == ["visible", "delayed"]
    (delayed,) = json_lines(headrace("queue", "browse", queue, "--state", "delayed", "--json"))
    assert (delayed["body"], delayed["key"]) == ("later", "k")
    assert r"now\nand here" in headrace("queue", "browse", queue, "--count", "1").stdout
    assert "nothing" in headrace("queue", "browse", queue, "--state", "leased").stderr
    explained = json.loads(headrace("queue", "explain", queue, "--id", delayed["id"], "--json").stdout)
    assert explained["state"] == "delayed"
    assert "delayed" in headrace("queue", "explain", queue, "--id", delayed["id"]).stdout
    headrace("queue", "explain", queue, code=2)
    assert "Dropped 2 messages" in headrace("queue", "purge", queue, "--yes").stdout
    assert json.loads(headrace("queue", "purge", queue, "-y", "--json").stdout) == {"purged": 0}


def test_dead_letters_are_sent_back(headrace: Headrace, queue: str) -> None:
    headrace("queue", "create", queue, "-s", "max_deliveries=1")
    headrace("send", queue, "tea")
    headrace("receive", queue, "--no-ack", "--lease", "10ms")

    def is_dead() -> bool:
        headrace("receive", queue)
        counts = json.loads(headrace("queue", "describe", queue, "--json").stdout)["counts"]
        return bool(counts["dead_lettered"] == 1)

    wait_until(is_dead, deadline_s=20, what="the message is in the dead-letter queue")
    assert "no redrive" in headrace("queue", "redrive", f"{queue}-dead", "--status").stderr
    (done,) = json.loads(headrace("queue", "redrive", f"{queue}-dead", "--rate", "100", "--json").stdout)
    assert (done["state"], done["moved"]) == ("completed", 1)
    assert done["id"] in headrace("queue", "redrive", f"{queue}-dead", "--status").stdout
    assert headrace("receive", queue, "--wait", "5s").stdout == "tea\n"


def test_named_readers_are_listed(headrace: Headrace, queue: str) -> None:
    headrace("queue", "create", queue)
    assert "Nobody" in headrace("queue", "readers", queue).stderr
    assert json.loads(headrace("queue", "readers", queue, "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("queue", "create", "fresh", "-s", "lease=13h"), "43200"),
        (("queue", "describe", "absent"), "absent"),
        (("queue", "redrive", "absent"), "absent"),
        (("receive", "absent"), "absent"),
        (("send", "fresh", "x", "--http", "127.0.0.1:1"), "headrace up"),
        (("send", "fresh", "x", "--ttl", "0"), "error: the node answered 422"),
    ],
)
def test_a_refusal_is_one_sentence_that_says_what_to_do(
    headrace: Headrace, arguments: tuple[str, ...], words: str
) -> None:
    check_refusal(headrace(*arguments, code=1), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("queue", "create", "fresh", "-s", "leese=1m"), "did you mean lease?"),
        (("queue", "create", "fresh", "-s", "lease=soon"), "no length of time"),
        (("queue", "create", "fresh", "-s", "fair=maybe"), "true or false"),
        (("queue", "create", "fresh", "-s", "leased_max=many"), "whole number, not"),
        (("queue", "create", "fresh", "-s", "messages_max=many"), "whole number or none"),
        (("queue", "create", "fresh", "-s", "ordered=none"), "ordered cannot be none"),
        (("queue", "create", "fresh", "-s", "guarantee=twice"), "at_most_once or at_least_once or exactly_once"),
        (("queue", "create", "fresh", "-s", "overflow=drop"), "reject or drop_oldest"),
        (("send", "two words", "x"), "letters, digits"),
        (("send", "fresh", "x", "--http", "..:8080"), "no valid host"),
        (("worker", "json:loads", "--queue", "fresh", "--http", "nowhere"), "has no port"),
        (("queue", "create", "fresh", "-s", "backoff=10s"), "10s-10m"),
        (("send", "fresh", "x", "--delay", "soon"), "no length of time"),
        (("receive", "fresh", "--lease", "soon"), "no length of time"),
        (("worker", "json:loads", "--grace", "soon"), "no length of time"),
        (("queue", "redrive", "fresh", "--before", "tea time"), "tea time"),
    ],
)
def test_a_value_that_cannot_be_meant_is_wrong_use(headrace: Headrace, arguments: tuple[str, ...], words: str) -> None:
    check_refusal(headrace(*arguments, code=2), words)
