"""Whatever is sent and sent again, to queues with room and without: each message is stored once, where it was said.

The model knows every message that was answered with a place. A request that is repeated must be answered with the same
places, may be refused only what has none, and must not make a queue drop anything for what it has already.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.queue.port import MessageState
from headrace.model.errors import InvalidRequestError, QueueFullError
from headrace.model.message import Message, Sent
from headrace.model.queue import PRIORITY_DEFAULT
from headrace.testing.clock import settle

Place = tuple[int, int]
# What one message of a request has. No queue takes a priority of 10.
options = st.sampled_from(
    [
        *({}, {}, {}, {"key": b"a"}, {"key": b"b"}, {"key": b"c"}),
        *({"deduplication_id": "x"}, {"deduplication_id": "y"}, {"deduplication_id": "x", "key": b"a"}),
        *({"deduplication_id": "x", "key": b"g"}, {"priority": 10}),
    ]
)
requests = st.lists(st.lists(options, min_size=1, max_size=5), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        st.tuples(st.just("acknowledge"), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("grow"), st.integers(1, 2)),
    ),
    min_size=2,
    max_size=14,
)
limits = st.sampled_from([{}, {"messages_max": 3}, {"messages_max": 3, "overflow": "drop_oldest"}])


class Sender:
    """Sends requests under fixed ids, as often as it is told to, and remembers the answers."""

    def __init__(self, world: QueueWorld, drawn: list[list[dict[str, Any]]]) -> None:
        self._world = world
        self._requests = [
            [Message(b"%d.%d" % (number, at), **options) for at, options in enumerate(messages)]
            for number, messages in enumerate(drawn)
        ]
        self._places: dict[Any, Place] = {}
        self.stored: dict[Place, bytes] = {}

    async def send(self, numbers: list[int]) -> None:
        """Several requests in one turn of the loop, so that some meet others that are not written yet."""
        numbers = [number % len(self._requests) for number in numbers]
        dropped = self._world.counts().dropped
        is_known = all(
            _name(number, at, message) in self._places or message.priority != PRIORITY_DEFAULT
            for number in numbers
            for at, message in enumerate(self._requests[number])
        )
        sends = [self._world.queues.send(NAME, self._requests[number], request_id=f"r{number}") for number in numbers]
        for number, send in zip(numbers, sends, strict=True):
            for at, outcome in enumerate(await send):
                self._note(number, at, outcome)
        if is_known:
            assert self._world.counts().dropped == dropped

    def _note(self, number: int, at: int, outcome: Any) -> None:
        message = self._requests[number][at]
        name = _name(number, at, message)
        if message.priority != PRIORITY_DEFAULT:
            assert isinstance(outcome, InvalidRequestError)
        elif isinstance(outcome, Sent):
            place = (outcome.partition, outcome.offset)
            assert outcome.is_duplicate == (name in self._places)
            assert self._places.setdefault(name, place) == place
            if not outcome.is_duplicate:
                assert place not in self.stored
                self.stored[place] = message.body
        else:
            assert isinstance(outcome, QueueFullError), outcome
            assert name not in self._places


def _name(number: int, at: int, message: Message) -> Any:
    """What a message is known by: its id, or its place in its request."""
    return message.deduplication_id or (number, at)


@settings(deadline=None, max_examples=60)
@given(requests, steps, limits, st.sampled_from([1, 3]))
def test_a_message_that_is_sent_again_is_where_it_was_said_to_be_and_nowhere_else(
    drawn: list[list[dict[str, Any]]], steps: list[tuple[str, Any]], limit: dict[str, Any], partitions: int
) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=partitions, **limit)
        sender = Sender(world, drawn)
        done: dict[Place, bytes] = {}
        for step, value in steps:
            if step == "send":
                await sender.send(value)
            elif step == "acknowledge":
                received = await world.receive(value)
                await world.acknowledge(*received)
                assert not done.keys() & {(message.partition, message.offset) for message in received}
                done |= {(message.partition, message.offset): message.body for message in received}
            elif step == "grow":
                count = world.node.broker.topic(NAME).partition_count
                await world.node.broker.create_partitions(NAME, count + value)
                await settle()
            else:
                await world.node.restart()
        page = await world.queues.browse(NAME, count_max=1000)
        left = {(message.partition, message.offset): message.body for message in page.messages}
        assert all(message.state is MessageState.VISIBLE for message in page.messages)
        assert (done | left).items() <= sender.stored.items()
        assert len(done) + len(left) + world.counts().dropped == len(sender.stored)
        if limit.get("overflow") is None and limit:
            assert len(left) <= limit["messages_max"]

    run(main())
