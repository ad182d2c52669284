"""The commands about groups against a real node, with confluent-kafka's consumers as members."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition
from tests.cli.command import Headrace
from tests.cli.running import RunningNode
from tests.support.wait import wait_until
from typer.testing import Result

from headrace import Client


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-readers"


def json_of(result: Result) -> Any:
    return json.loads(result.stdout)


@contextmanager
def member(node: RunningNode, group: str, topic: str, **more: object) -> Iterator[Consumer]:
    """A consumer that has its partitions and one message."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.server,
            "group.id": group,
            "client.id": "tester",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    consumer.subscribe([topic])

    def has_read() -> bool:
        message = consumer.poll(0.5)
        return message is not None and message.error() is None

    try:
        wait_until(has_read, deadline_s=30, what=lambda: f"the consumer reads; it has {consumer.assignment()}")
        yield consumer
    finally:
        consumer.close()


def commit(node: RunningNode, group: str, topic: str, offsets: dict[int, int]) -> None:
    """As a program does that only keeps its offsets here."""
    consumer = Consumer({"bootstrap.servers": node.server, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def produce(headrace: Headrace, topic: str, counts: dict[int, int]) -> None:
    # The times below are long past: with the usual retention the node would drop the messages at its next look.
    headrace("topic", "create", topic, "-p", str(len(counts)), "--set", "retention.ms=-1")
    for partition, count in counts.items():
        stamp = str(1_700_000_000_000 + partition * 1000)
        lines = "".join(f"{number}\n" for number in range(count))
        headrace("produce", topic, "-p", str(partition), "--timestamp", stamp, input=lines)


def committed(headrace: Headrace, group: str) -> dict[int, int]:
    view = json_of(headrace("group", "describe", group, "--json"))
    return {one["partition"]: one["committed"] for one in view["partitions"]}


def test_a_group_is_listed_and_described_with_its_lag_and_its_members(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 10, 1: 4})
    with member(node, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        listed = {one["name"]: one for one in json_of(headrace("group", "list", "--json"))}
        assert listed[group] == {"name": group, "type": "classic", "state": "Stable", "protocol": "consumer"}
        view = json_of(headrace("group", "describe", group, "--json"))
        assert (view["type"], view["state"], view["lag"]) == ("classic", "Stable", 3)
        (only,) = view["members"]
        assert only["client_id"] == "tester"
        assert [place["partition"] for place in only["partitions"]] == [0, 1]
        first, second = view["partitions"]
        assert (first["committed"], first["end_offset"], first["lag"]) == (7, 10, 3)
        assert (second["committed"], second["lag"], second["member_id"]) == (None, None, only["member_id"])
        shown = headrace("group", "describe", group).stdout
        assert f"{group}  classic group, Stable, 1 member" in shown
        assert "end offset" in shown
    assert group in headrace("group", "list").stdout


def test_a_group_with_members_is_neither_moved_nor_deleted(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 3})
    with member(node, group, topic):
        refused = headrace("group", "reset", group, "--to", "earliest", "--topic", topic, code=1)
        assert "has 1 member (Stable)" in refused.stderr
        assert "has members; stop them first" in headrace("group", "delete", group, "--yes", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (("--to", "earliest"), {0: 0, 1: 0}),
        (("--to", "latest"), {0: 10, 1: 10}),
        (("--to", "4"), {0: 4, 1: 4}),
        (("--to", "99"), {0: 10, 1: 10}),
        (("--by", "-2"), {0: 3, 1: 4}),
        (("--by", "2"), {0: 7, 1: 8}),
        (("--by", "-50"), {0: 0, 1: 0}),
        (("--to-time", "2023-11-14T22:13:20.500Z"), {0: 10, 1: 0}),
    ],
    ids=lambda value: "".join(value).strip("-") if isinstance(value, tuple) else "",
)
def test_a_group_goes_on_where_it_is_told_to(
    headrace: Headrace, node: RunningNode, topic: str, group: str, arguments: tuple[str, ...], after: dict[int, int]
) -> None:
    topic = topic.replace(":", "-")
    produce(headrace, topic, {0: 10, 1: 10})
    commit(node, group, topic, {0: 5, 1: 6})
    planned = json_of(headrace("group", "reset", group, *arguments, "--dry-run", "--json"))
    assert {one["partition"]: (one["from"], one["to"]) for one in planned["partitions"]} == {
        0: (5, after[0]),
        1: (6, after[1]),
    }
    assert planned["changed"] is False
    assert committed(headrace, group) == {0: 5, 1: 6}
    assert "goes on there" in headrace("group", "reset", group, *arguments).stdout
    assert committed(headrace, group) == after


def test_only_the_partitions_that_are_named_are_moved(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 10, 1: 10})
    commit(node, group, topic, {0: 5, 1: 5})
    headrace("group", "reset", group, "--to", "latest", "--topic", f"{topic}:1")
    assert committed(headrace, group) == {0: 5, 1: 10}


def test_a_group_may_be_told_where_to_begin_before_it_is_there(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 10})
    headrace("group", "reset", group, "--to", "9", "--topic", topic)
    with member(node, group, topic) as consumer:
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 10


def test_a_deleted_group_is_gone_with_its_offsets(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 3})
    commit(node, group, topic, {0: 2})
    assert json_of(headrace("group", "delete", group, "--yes", "--json")) == {"deleted": [group]}
    assert group not in headrace("group", "list").stdout
    assert "no group" in headrace("group", "describe", group, code=1).stderr


def test_the_live_view_shows_what_has_moved_since_the_look_before(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 10})
    commit(node, group, topic, {0: 4})
    looks = headrace("group", "describe", group, "--watch", "--interval", "0.1", "--count", "2", "--json").stdout
    assert [json.loads(line)["lag"] for line in looks.splitlines()] == [6, 6]
    table = headrace("group", "describe", group, "--watch", "--interval", "0.1", "-c", "2").stdout
    assert table.count("reads/s") == 2
    assert "lag 6, reads 0/s, 0/s arrive" in table


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("describe", "absent"), "there is no group absent", 1),
        (("delete", "absent", "--yes"), "no such group", 1),
        (("delete", "absent"), "--yes", 1),
        (("reset", "absent", "--to", "latest"), "there is no group absent", 1),
        (("reset", "absent", "--to", "latest", "--topic", "nowhere"), "nowhere", 1),
        (("reset", "absent", "--to-time", "soon"), "is no time", 2),
        (("reset", "absent", "--to", "middle"), "earliest, latest, or an offset", 2),
        (("reset", "absent", "--to", "1", "--topic", "t:x"), "TOPIC:PARTITION", 2),
        (("reset", "absent"), "give one of", 2),
        (("reset", "absent", "--to", "1", "--by", "1"), "give one of", 2),
    ],
)
def test_a_refusal_says_what_to_do(headrace: Headrace, arguments: tuple[str, ...], words: str, code: int) -> None:
    result = headrace("group", *arguments, code=code)
    assert result.stdout == ""
    assert words in " ".join(result.stderr.split()).replace("│ ", "")


def test_a_group_of_the_newer_protocol_is_described_with_its_kind(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    produce(headrace, topic, {0: 10, 1: 4})
    with member(node, group, topic, **{"group.protocol": "consumer"}) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        listed = {one["name"]: one["type"] for one in json_of(headrace("group", "list", "--json"))}
        assert listed[group] == "consumer"
        view = json_of(headrace("group", "describe", group, "--json"))
        assert (view["type"], view["state"], view["lag"]) == ("consumer", "Stable", 3)
        (only,) = view["members"]
        assert [place["partition"] for place in only["partitions"]] == [0, 1]
        refused = headrace("group", "reset", group, "--to", "latest", code=1)
        assert "has 1 member" in refused.stderr
    headrace("group", "reset", group, "--to", "latest")
    assert committed(headrace, group) == {0: 10}
    headrace("group", "delete", group, "--yes")


def test_a_share_group_is_listed_and_has_no_offsets_to_set(
    headrace: Headrace, node: RunningNode, topic: str, group: str
) -> None:
    with Client(node.ready["http"]) as client:
        client.queue(topic).send("one tea")
    consumer = ShareConsumer({"bootstrap.servers": node.server, "group.id": group, "log_level": 0})
    try:
        consumer.subscribe([topic])

        def is_listed() -> bool:
            consumer.poll(0.2)
            return any(one["name"] == group for one in json_of(headrace("group", "list", "--json")))

        wait_until(is_listed, deadline_s=30, what="the share group is listed")
        view = json_of(headrace("group", "describe", group, "--json"))
        assert view["type"] == "share"
        assert [[place["topic"] for place in one["partitions"]] for one in view["members"]] == [[topic]]
        assert "share group" in headrace("group", "reset", group, "--to", "latest", code=1).stderr
    finally:
        consumer.close()
