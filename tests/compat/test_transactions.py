"""Transactions as clients have them: all or nothing, for whoever reads committed messages, whatever client that is."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.compat.clients.every import CLIENTS, CONFLUENT
from tests.compat.clients.message import DEADLINE_S, Client, Message
from tests.compat.clients.transactional import CLIENT_ERRORS, KINDS, Kind, producing
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

every_producer = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def values(client: Client, node: NodeProcess, topic: str, *, committed: bool) -> list[bytes | None]:
    return [message.value for _, message in client.read(node.server, topic, committed=committed)]


def committed_offset(node: NodeProcess, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": node.server, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        offset: int = found.offset
        return offset
    finally:
        consumer.close()


@every_producer
def test_what_commits_is_read_and_what_aborts_is_not(node: NodeProcess, topic: str, kind: Kind) -> None:
    with producing(kind, node.server, f"{topic}-id") as producer:
        for number, is_commit in enumerate((True, False, True, False)):
            producer.begin()
            for part in range(2):
                producer.send(topic, b"%d-%d" % (number, part))
            if is_commit:
                producer.commit()
            else:
                producer.abort()
    kept = [b"0-0", b"0-1", b"2-0", b"2-1"]
    everything = [b"%d-%d" % (number, part) for number in range(4) for part in range(2)]
    for client in CLIENTS:
        assert values(client, node, topic, committed=True) == kept, client.name
        assert values(client, node, topic, committed=False) == everything, client.name


@every_producer
def test_readers_of_committed_messages_wait_for_an_open_transaction(node: NodeProcess, topic: str, kind: Kind) -> None:
    CONFLUENT.write(node.server, topic, [Message(value=b"before")])
    with producing(kind, node.server, f"{topic}-id") as producer:
        producer.begin()
        producer.send(topic, b"within")
        CONFLUENT.write(node.server, topic, [Message(value=b"after")])
        assert values(CONFLUENT, node, topic, committed=True) == [b"before"]
        assert values(CONFLUENT, node, topic, committed=False) == [b"before", b"within", b"after"]
        producer.commit()
    assert values(CONFLUENT, node, topic, committed=True) == [b"before", b"within", b"after"]


@every_producer
def test_a_transaction_over_several_partitions_and_topics_is_one(node: NodeProcess, topic: str, kind: Kind) -> None:
    with producing(kind, node.server, f"{topic}-id") as producer:
        for number, is_commit in enumerate((False, True)):
            producer.begin()
            for name in (f"{topic}-a", f"{topic}-b"):
                producer.send(name, b"%d" % number)
            if is_commit:
                producer.commit()
            else:
                producer.abort()
    for name in (f"{topic}-a", f"{topic}-b"):
        assert values(CONFLUENT, node, name, committed=True) == [b"1"]


@every_producer
def test_a_new_instance_fences_the_old_one_and_aborts_what_it_left_open(
    node: NodeProcess, topic: str, kind: Kind
) -> None:
    with producing(kind, node.server, f"{topic}-id") as old:
        old.begin()
        old.send(topic, b"old")
        with producing(kind, node.server, f"{topic}-id") as new:
            new.begin()
            new.send(topic, b"new")
            with pytest.raises(CLIENT_ERRORS):
                old.commit()
            new.commit()
    assert values(CONFLUENT, node, topic, committed=True) == [b"new"]


@every_producer
def test_offsets_commit_with_the_transaction_or_not_at_all(node: NodeProcess, topic: str, kind: Kind) -> None:
    group = f"{topic}-group"
    CONFLUENT.write(node.server, topic, [Message(value=b"%d" % number) for number in range(10)])
    with producing(kind, node.server, f"{topic}-id") as producer:
        producer.begin()
        producer.send(f"{topic}-out", b"x")
        producer.send_offsets(group, {(topic, 0): 3})
        producer.commit()
        assert committed_offset(node, group, topic) == 3
        producer.begin()
        producer.send(f"{topic}-out", b"y")
        producer.send_offsets(group, {(topic, 0): 7})
        producer.abort()
    assert committed_offset(node, group, topic) == 3
    assert values(CONFLUENT, node, f"{topic}-out", committed=True) == [b"x"]


@every_producer
def test_a_transaction_whose_producer_is_silent_is_aborted_when_its_time_is_over(
    node: NodeProcess, topic: str, kind: Kind
) -> None:
    """Failure row 30: what nobody ends must not keep readers waiting."""
    with producing(kind, node.server, f"{topic}-id", timeout_ms=1000) as silent:
        silent.begin()
        silent.send(topic, b"left open")
        CONFLUENT.write(node.server, topic, [Message(value=b"behind it")])
        wait_until(
            lambda: values(CONFLUENT, node, topic, committed=True) == [b"behind it"],
            deadline_s=DEADLINE_S,
            what="the message behind the transaction is readable",
        )
        with pytest.raises(CLIENT_ERRORS):
            silent.commit()
