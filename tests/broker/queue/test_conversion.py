"""A topic that is not a queue: what is said about it, and what it takes to make it one."""

import pickle
from collections.abc import Callable

import pytest
from tests.broker.node import Node, batch, gathered, run
from tests.broker.queue.world import QueueWorld

from headrace.model.errors import HeadraceError, NotAQueueError, TopicHasRecordsError, UnknownQueueError
from headrace.model.message import Message
from headrace.model.queue import QueueConfig

TOPIC = "clicks"


async def stream(*, records: int) -> Node:
    node = await Node().start()
    await node.make(TOPIC, partitions=2)
    for _ in range(records):
        await gathered([node.broker.partition(TOPIC, 1).append(batch(b"x"))])
    return node


def test_everything_that_is_asked_of_a_topic_says_that_it_is_not_a_queue() -> None:
    async def main() -> None:
        node = await stream(records=1)
        queues = node.queues
        calls: list[Callable[[], object]] = [
            lambda: queues.find(TOPIC),
            lambda: queues.describe(TOPIC),
            lambda: queues.redrives(TOPIC),
            lambda: queues.readers(TOPIC),
        ]
        for call in calls:
            with pytest.raises(NotAQueueError) as said:
                call()
            assert said.value.topic == TOPIC
        for work in (
            queues.update(TOPIC, QueueConfig()),
            queues.delete(TOPIC),
            queues.purge(TOPIC),
            queues.browse(TOPIC),
            queues.explain(TOPIC, id="0-0"),
            queues.redrive(TOPIC),
        ):
            with pytest.raises(NotAQueueError):
                await work
        for promise in (
            queues.receive(TOPIC, count_max=1).promise,
            queues.send(TOPIC, [Message(b"tea")]),
            queues.send_one(TOPIC, Message(b"tea")),
            queues.acknowledge(TOPIC, ["receipt"]),
        ):
            with pytest.raises(NotAQueueError):
                await promise
        with pytest.raises(UnknownQueueError) as unknown:
            queues.find("__consumer_offsets")
        assert not isinstance(unknown.value, NotAQueueError)

    run(main())


def test_a_topic_that_holds_records_becomes_a_queue_only_when_that_is_confirmed() -> None:
    async def main() -> None:
        node = await stream(records=3)
        with pytest.raises(TopicHasRecordsError) as refused:
            await node.queues.create(TOPIC)
        assert "holds 3 records" in refused.value.changes
        assert "retention.ms from 604800000 to -1" in refused.value.changes
        assert "drops an unacknowledged one after 7 days" in refused.value.changes
        assert (node.queues.names(), node.catalog.topics[TOPIC].overrides) == ([], {})
        await node.queues.create(TOPIC, convert=True)
        assert len(await QueueWorld(node).bodies(queue=TOPIC)) == 3

    run(main())


def test_a_topic_that_holds_no_record_becomes_a_queue_at_once() -> None:
    async def main() -> None:
        node = await stream(records=0)
        await node.queues.create(TOPIC)
        assert node.queues.names() == [TOPIC]

    run(main())


@pytest.mark.parametrize(
    "error",
    [NotAQueueError.of(TOPIC), NotAQueueError.of(TOPIC, "convert it"), TopicHasRecordsError.of("it holds", "confirm")],
)
def test_these_errors_come_out_of_another_process_as_they_were(error: HeadraceError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
