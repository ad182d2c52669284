"""Topics that go, or that another takes the place of, while a stream reads them and may go on without them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from tests.spark.source_data import create, options_of, produce
from tests.spark.test_source_stream import delete_topic, kept, numbers, tail
from tests.support.node import NodeProcess

from headrace import Client
from headrace.client.values import TopicPartition
from headrace.spark.errors import DataLossError
from headrace.spark.link import Link
from headrace.spark.source.reading import Range
from headrace.spark.source.tail import Tail

WHEN = ("end_offsets", "start_offsets", "wait")


class Surprising(Link):
    """Something happens, once, just before a node is asked the question that is named by `when`."""

    when = ""
    what: Callable[[], None] | None = None

    def start_offsets(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._happen("start_offsets")
        return super().start_offsets(ats)

    def end_offsets(self, ats: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        self._happen("end_offsets")
        return super().end_offsets(ats, committed=committed)

    def wait(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> None:
        self._happen("wait")
        super().wait(positions, wait_ms)

    def _happen(self, when: str) -> None:
        if when == self.when and self.what is not None:
            what, self.what = self.what, None
            what()


@contextmanager
def surprising(node: NodeProcess, **options: object) -> Iterator[tuple[Tail, Surprising]]:
    read = options_of(node, startingOffsets="earliest", **options)
    with Surprising(read.servers, read.client) as link:
        yield Tail(read, link), link


def selections(topic: str) -> list[dict[str, object]]:
    assigned = f'{{"{topic}.kept": [0], "{topic}.gone": [0]}}'
    return [{"subscribe": f"{topic}.kept,{topic}.gone"}, {"assign": assigned}, {"subscribePattern": f"{topic}.*"}]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("selection", [0, 1, 2])
def test_a_stream_that_may_goes_on_when_a_topic_is_deleted_while_it_is_asked_about(
    node: NodeProcess, topic: str, when: str, selection: int
) -> None:
    stays, goes = f"{topic}.kept", f"{topic}.gone"
    for name in (stays, goes):
        create(node, name)
        produce(node, name, numbers(2))
    with surprising(node, **selections(topic)[selection], failOnDataLoss=False) as (one, link):
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        link.when, link.what = when, lambda: delete_topic(node, goes)
        assert one.latest(end, most=None, least=None) is None
        assert link.what is None, "the topic was deleted"
        produce(node, stays, numbers(3))
        following = kept(one.latest(end, most=None, least=None))
        assert one.ranges(end, following) == [Range(stays, 0, 2, 5)]


@pytest.mark.parametrize("when", WHEN)
def test_a_stream_that_may_not_says_that_a_topic_was_deleted_while_it_was_asked_about(
    node: NodeProcess, topic: str, when: str
) -> None:
    create(node, topic)
    produce(node, topic, numbers(2))
    with surprising(node, subscribe=topic) as (one, link):
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        link.when, link.what = when, lambda: delete_topic(node, topic)
        with pytest.raises(DataLossError, match=f"^{topic} was deleted"):
            one.latest(end, most=None, least=None)


def test_a_batch_of_a_topic_that_is_deleted_while_it_is_cut_into_tasks_has_the_others(
    node: NodeProcess, topic: str
) -> None:
    stays, goes = f"{topic}.kept", f"{topic}.gone"
    for name in (stays, goes):
        create(node, name)
        produce(node, name, numbers(2))
    with surprising(node, subscribePattern=f"{topic}.*", failOnDataLoss=False) as (one, link):
        initial = kept(one.initial())
        end = kept(one.latest(initial, most=None, least=None))
        link.when, link.what = "start_offsets", lambda: delete_topic(node, goes)
        assert one.ranges(initial, end) == [Range(stays, 0, 0, 2)]


def test_a_topic_made_anew_with_as_many_messages_as_were_read_is_read_once(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest", failOnDataLoss=False) as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        delete_topic(node, topic)
        create(node, topic)
        produce(node, topic, numbers(3))
        following = kept(one.latest(end, most=None, least=None))
        assert one.ranges(end, following) == [Range(topic, 0, 0, 3)]
        assert one.latest(following, most=None, least=None) is None


def test_the_places_of_a_topic_are_forgotten_with_it(node: NodeProcess, topic: str) -> None:
    """Or a partition that the new one gets later would be read from where the old one's was."""
    create(node, topic, partitions=2)
    produce(node, topic, numbers(4), partition=1)
    with tail(node, subscribe=topic, startingOffsets="earliest", failOnDataLoss=False) as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        delete_topic(node, topic)
        create(node, topic)
        following = kept(one.latest(end, most=None, least=None))
        assert following.offsets == {TopicPartition(topic, 0): 0}


def test_a_queue_made_anew_is_read_from_its_start(node: NodeProcess, topic: str) -> None:
    with Client(node.http) as client, tail_of_queue(node, client, topic) as one:
        queue = client.queue(topic)
        for number in range(5):
            queue.send(f"{number}")
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        for message in queue.receive(max=5, wait=5):
            message.ack()
        assert one.latest(end, most=None, least=None) is None, "it has seen that these are no messages"
        delete_topic(node, topic)
        queue.create()
        queue.send("new")
        following = kept(one.latest(end, most=None, least=None))
        assert [found.start for found in one.ranges(end, following)] == [0]


@contextmanager
def tail_of_queue(node: NodeProcess, client: Client, queue: str) -> Iterator[Tail]:
    client.queue(queue).create()
    with tail(node, queue=queue, http=node.http, startingOffsets="earliest", failOnDataLoss=False) as made:
        yield made
