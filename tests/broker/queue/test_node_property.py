"""Whatever is sent, received, acknowledged, killed and restarted on a node: its clients see what was promised to them.

The model is what the clients know: what they were told, and what they were not told because the node died first. After
every step it is asked of every partition that each message is accounted for and in one place (invariant 6), and of
every receipt that was ever given out that at most one for a message is good (7). What was acknowledged never comes
again, and nothing is a dead letter before its attempts are used up (8). A replay of the log, from the newest snapshot
on, ends in the very bytes that the live state is written down as. At the end everything is received that is left:
whatever was sent and is neither there nor done was lost.
"""

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.node import Node
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.promise import Promise
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Extension, Rejection, Release
from headrace.broker.queue.replay import restore_queue
from headrace.folds.queue.image import fold_name, snapshot
from headrace.folds.queue.invariant import check_invariants
from headrace.model.errors import HeadraceError, StaleReceiptError
from headrace.model.message import Message, Received
from headrace.model.queue import Backoff, Guarantee
from headrace.testing.clock import settle

DEAD = "orders-dead"
LEASES_MS = [0, 1000, 30_000]
LONG_MS = 100_000  # longer than every lease, delay and retry

T = TypeVar("T")

settings_of_queues = st.fixed_dictionaries(
    {
        "guarantee": st.sampled_from(list(Guarantee)),
        "ordered": st.booleans(),
        "max_deliveries": st.sampled_from([None, 1, 2, 10]),
        "backoff": st.sampled_from([None, None, Backoff(first_ms=500, last_ms=2000)]),
    }
)
which = st.integers(0, 30)
turns = st.sampled_from([0, 0, 1, 2, 3, 5])  # of the loop, before the node dies


@dataclass
class Lent:
    """A lease as its holder knows it."""

    message: Received
    until_ms: int  # at least, since a lease clock stands still while its node is down
    is_forgotten: bool = False  # the node died, and may not have had the lease on disk
    is_over: bool = False  # given back or acknowledged, or that was asked


@dataclass
class Known:
    """A message as its users know it."""

    body: bytes
    key: bytes | None
    is_sent: bool = False  # or perhaps: the node died before it answered
    lent: list[Lent] = field(default_factory=list)
    unheard_count: int = 0  # hand-outs that it may have been part of and nobody heard of
    is_rejected: bool = False
    is_acknowledged: bool = False
    may_be_acknowledged: bool = False


class NodeMachine(RuleBasedStateMachine):
    """A node with one queue, its users, and its deaths."""

    @initialize(config=settings_of_queues, partitions=st.sampled_from([1, 1, 2]))
    def start(self, config: dict[str, Any], partitions: int) -> None:
        self.runner = asyncio.Runner()
        self.guarantee: Guarantee = config["guarantee"]
        self.ordered: bool = config["ordered"]
        self.max_deliveries: int | None = config["max_deliveries"]
        self.known: dict[bytes, Known] = {}
        self.lost_at_most = 0
        self.world = QueueWorld(Node())
        self.do(self.world.start(partitions=partitions, **config))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, 30))

    def asked(self, call: Callable[[], Promise[T]]) -> T:
        """The answer to a call, which is made in the loop."""

        async def go() -> T:
            return await call()

        return self.do(go())

    @property
    def now_ms(self) -> int:
        return self.world.node.clock.monotonic_ms()

    def partitions(self) -> list[PartitionQueue]:
        return list(self.world.queues._live.find(NAME).partitions)

    # What users do.

    def drawn(self, count: int, key: bytes | None, delay_ms: int | None, priority: int) -> list[Message]:
        messages = []
        for _ in range(count):
            body = b"%d" % len(self.known)
            self.known[body] = Known(body, key)
            messages.append(Message(body, key=key, delay_ms=delay_ms, priority=priority))
        return messages

    @rule(
        count=st.integers(1, 3),
        key=st.sampled_from([None, b"a", b"a", b"b"]),
        delay_ms=st.sampled_from([None, None, 400, 5000]),
        priority=st.sampled_from([5, 5, 9]),
    )
    def send(self, count: int, key: bytes | None, delay_ms: int | None, priority: int) -> None:
        messages = self.drawn(count, key, delay_ms, priority)
        outcomes = self.asked(lambda: self.world.queues.send(NAME, messages))
        assert len({(sent.partition, sent.offset) for sent in outcomes}) == count
        for message in messages:
            self.known[message.body].is_sent = True

    @rule(count=st.integers(1, 4), lease_ms=st.sampled_from(LEASES_MS))
    def receive(self, count: int, lease_ms: int) -> None:
        self.received(self.do(self.world.receive(count, lease_ms=lease_ms)), lease_ms)

    @precondition(lambda self: self.held())
    @rule(which_one=which)
    def acknowledge(self, which_one: int) -> None:
        lent, known = self.one_held(which_one)
        (refusal,) = self.do(self.world.acknowledge(lent.message))
        self.expected(lent, refusal)
        if refusal is None:
            known.is_acknowledged = lent.is_over = True

    @precondition(lambda self: self.held())
    @rule(first=which, count=st.integers(2, 4), key=st.sampled_from([None, b"a"]))
    def acknowledge_and_send_in_one_turn(self, first: int, count: int, key: bytes | None) -> None:
        """Each by a call of its own, all of which are written together."""
        held = self.held()
        lent = [held[(first + step) % len(held)][0] for step in range(min(count, len(held)))]
        messages = self.drawn(2, key, None, 5)

        async def go() -> list[HeadraceError | None]:
            sends = [self.world.queues.send_one(NAME, message) for message in messages]
            asked = [self.world.queues.acknowledge(NAME, [one.message.receipt]) for one in lent]
            for send in sends:
                await send
            return [refusal for promise in asked for refusal in await promise]

        for one, refusal in zip(lent, self.do(go()), strict=True):
            self.expected(one, refusal)
            if refusal is None:
                self.known[one.message.body].is_acknowledged = one.is_over = True
        for message in messages:
            self.known[message.body].is_sent = True

    @precondition(lambda self: self.held())
    @rule(which_one=which, delay_ms=st.sampled_from([None, 0, 800]), is_unbegun=st.booleans())
    def release(self, which_one: int, delay_ms: int | None, is_unbegun: bool) -> None:
        lent, _ = self.one_held(which_one)
        release = Release(lent.message.receipt, None if is_unbegun else delay_ms, is_unbegun)
        (refusal,) = self.asked(lambda: self.world.queues.release(NAME, [release]))
        self.expected(lent, refusal)
        lent.is_over = True

    @precondition(lambda self: self.held())
    @rule(which_one=which, lease_ms=st.sampled_from(LEASES_MS))
    def extend(self, which_one: int, lease_ms: int) -> None:
        lent, _ = self.one_held(which_one)
        (refusal,) = self.asked(lambda: self.world.queues.extend(NAME, [Extension(lent.message.receipt, lease_ms)]))
        self.expected(lent, refusal)
        if refusal is None:
            lent.until_ms = self.now_ms + lease_ms

    @precondition(lambda self: self.max_deliveries is not None and self.held())
    @rule(which_one=which)
    def reject(self, which_one: int) -> None:
        lent, known = self.one_held(which_one)
        known.is_rejected = True
        (refusal,) = self.asked(lambda: self.world.queues.reject(NAME, [Rejection(lent.message.receipt, "no")]))
        self.expected(lent, refusal)
        lent.is_over = True

    @rule(ms=st.sampled_from([0, 50, 999, 1000, 2500, 30_000]))
    def wait(self, ms: int) -> None:
        self.do(self.world.node.clock.elapse(ms))

    # What becomes of the node.

    @rule()
    def restart(self) -> None:
        self.do(self.stopped())
        self.do(self.reborn(None))

    @rule(is_power_lost=st.booleans(), seed=st.integers(0, 1000))
    def kill(self, is_power_lost: bool, seed: int) -> None:
        self.do(self.reborn(random.Random(seed) if is_power_lost else None, is_killed=True))

    @rule(count=st.integers(1, 3), turn_count=turns, is_power_lost=st.booleans(), seed=st.integers(0, 1000))
    def kill_amid_a_send(self, count: int, turn_count: int, is_power_lost: bool, seed: int) -> None:
        messages = self.drawn(count, b"a", None, 5)
        send = lambda: self.world.queues.send(NAME, messages)  # noqa: E731
        if self.answer_before_death(send, turn_count, is_power_lost, seed) is not None:
            for message in messages:
                self.known[message.body].is_sent = True

    @rule(count=st.integers(1, 3), turn_count=turns, is_power_lost=st.booleans(), seed=st.integers(0, 1000))
    def kill_amid_a_receive(self, count: int, turn_count: int, is_power_lost: bool, seed: int) -> None:
        receive = lambda: self.world.queues.receive(NAME, count_max=count).promise  # noqa: E731
        answer = self.answer_before_death(receive, turn_count, is_power_lost, seed)
        if answer is not None:
            self.received(answer, 30_000)
            self.forget_leases()
        else:
            self.lost_at_most += count
            for known in self.known.values():
                known.unheard_count += 1

    @precondition(lambda self: self.held())
    @rule(which_one=which, turn_count=turns, is_power_lost=st.booleans(), seed=st.integers(0, 1000))
    def kill_amid_an_acknowledgement(self, which_one: int, turn_count: int, is_power_lost: bool, seed: int) -> None:
        lent, known = self.one_held(which_one)
        acknowledge = lambda: self.world.queues.acknowledge(NAME, [lent.message.receipt])  # noqa: E731
        answer = self.answer_before_death(acknowledge, turn_count, is_power_lost, seed)
        if answer == [None]:
            known.is_acknowledged = lent.is_over = True
        elif answer is None:
            known.may_be_acknowledged = True

    def answer_before_death(
        self, call: Callable[[], Promise[T]], turn_count: int, is_power_lost: bool, seed: int
    ) -> T | None:
        """The answer to a call, if it comes within so many turns of the loop, after which the node dies."""

        async def go() -> T | None:
            promise = call()
            for _ in range(turn_count):
                await asyncio.sleep(0)
            answer = promise.result() if promise.done() else None
            await self.reborn(random.Random(seed) if is_power_lost else None, is_killed=True)
            return answer

        return self.do(go())

    async def stopped(self) -> None:
        await self.world.node.queues.stop()
        await self.world.node.logs.stop()

    async def reborn(self, chooser: random.Random | None, *, is_killed: bool = False) -> None:
        """Another process on a copy of the disk, so that the old one can do nothing to it any more."""
        before = self.world.node
        disk = before.disk.copy()
        if chooser is not None:
            disk.crash(chooser)
        before.abandon()
        node = Node(disk=disk)
        node.store = before.store
        node.clock.advance(before.clock.monotonic_ms() + 100)
        await node.start()
        self.world = QueueWorld(node)
        if is_killed:
            self.forget_leases()

    def forget_leases(self) -> None:
        """The node may not have had any of them on disk, unless it promised to."""
        if self.guarantee is Guarantee.AT_LEAST_ONCE:
            for known in self.known.values():
                for lent in known.lent:
                    lent.is_forgotten = True

    # What users may expect.

    def received(self, messages: list[Received], lease_ms: int) -> None:
        bodies = [message.body for message in messages]
        assert len(bodies) == len(set(bodies)), "a message came twice in one answer"
        for message in messages:
            known = self.known[message.body]
            assert not known.is_acknowledged, "an acknowledged message came again"
            assert not known.lent or self.guarantee is not Guarantee.AT_MOST_ONCE, "a message was handed out twice"
            last = known.lent[-1] if known.lent else None
            if last is not None and not last.is_forgotten:
                assert last.is_over or known.may_be_acknowledged or last.until_ms <= self.now_ms, "leased twice at once"
            heard = [lent for lent in known.lent if not lent.is_forgotten]
            assert 1 <= message.attempt <= len(known.lent) + known.unheard_count + 1
            assert self.max_deliveries is None or message.attempt <= self.max_deliveries
            assert message.receipt not in {lent.message.receipt for lent in heard}
            known.lent.append(Lent(message, self.now_ms + lease_ms))
        if self.ordered:
            for message in messages:
                self.nothing_earlier_waits(message, bodies)

    def nothing_earlier_waits(self, message: Received, bodies: list[bytes]) -> None:
        """Of its key, and below it in the log, there is nothing but what is done or came with it, before it."""
        if message.key is None:
            return
        for known in self.known.values():
            if known.key != message.key or not known.lent or self.may_be_done(known):
                continue
            if known.lent[-1].message.offset < message.offset:
                assert known.body in bodies[: bodies.index(message.body)], "a message has passed an earlier one"

    def may_be_done(self, known: Known) -> bool:
        return known.is_acknowledged or known.may_be_acknowledged or self.may_be_dead(known)

    def may_be_dead(self, known: Known) -> bool:
        if self.max_deliveries is None:
            return self.guarantee is Guarantee.AT_MOST_ONCE
        attempts = len(known.lent) + known.unheard_count
        return known.is_rejected or attempts >= self.max_deliveries or self.guarantee is Guarantee.AT_MOST_ONCE

    def held(self) -> list[tuple[Lent, Known]]:
        """Every lease that was ever given out, and not given back."""
        if self.guarantee is Guarantee.AT_MOST_ONCE:
            return []
        return [(lent, known) for known in self.known.values() for lent in known.lent if not lent.is_over]

    def one_held(self, which_one: int) -> tuple[Lent, Known]:
        held = self.held()
        return held[which_one % len(held)]

    def expected(self, lent: Lent, refusal: HeadraceError | None) -> None:
        """The newest receipt is good while its lease lasts; one whose message was leased again is not.

        If a death of the node made it forget the later leases, the last one that it has on disk is the newest again,
        with what was left of it then.
        """
        known = self.known[lent.message.body]
        is_newest = lent is known.lent[-1]
        at = next(at for at, one in enumerate(known.lent) if one is lent)
        was_leased_again = not all(one.is_forgotten for one in known.lent[at + 1 :])
        if is_newest and self.now_ms < lent.until_ms and not lent.is_forgotten:
            if not (known.may_be_acknowledged or known.unheard_count):
                assert refusal is None, "the newest receipt was refused"
        elif was_leased_again:
            assert isinstance(refusal, StaleReceiptError), refusal

    # What must hold.

    @invariant()
    def every_message_is_accounted_for(self) -> None:
        if not hasattr(self, "world"):
            return
        for partition in self.partitions():
            check_invariants(partition.fold)
        counts = self.world.counts()
        live = counts.visible + counts.leased + counts.delayed
        assert counts.sent == live + counts.acknowledged + counts.dead_lettered
        assert counts.sent >= sum(known.is_sent for known in self.known.values())
        if self.guarantee is not Guarantee.AT_MOST_ONCE:
            assert counts.acknowledged >= sum(known.is_acknowledged for known in self.known.values())

    @invariant()
    def at_most_one_receipt_of_a_message_is_good(self) -> None:
        if not hasattr(self, "world"):
            return
        leases = self.world.queues._live.find(NAME).leases
        for known in self.known.values():
            good = 0
            for receipt in {lent.message.receipt for lent in known.lent if lent.message.receipt}:
                partition, read = leases._read(receipt)
                try:
                    partition.check(read)
                except StaleReceiptError:
                    continue
                good += 1
            assert good <= (0 if known.is_acknowledged else 1)

    @rule()
    def replay(self) -> None:
        """What is on disk, replayed from the newest snapshot on, is what is in memory, to the byte."""

        async def compare() -> None:
            for partition in self.partitions():
                partition.write_now()
                await settle()
                node = self.world.node
                fold = await restore_queue(
                    partition.id, partition.partition, store=node.logs, threads=node.sync_threads
                )
                for one in (partition.fold, fold):
                    one.advance(partition.now.now())
                    one.catch_up()
                name = fold_name(partition.id)
                assert snapshot(fold, name) == snapshot(partition.fold, name)

        self.do(compare())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.replay()
            self.do(self.nothing_is_lost())
        finally:
            self.world.node.abandon()
            self.runner.close()

    async def nothing_is_lost(self) -> None:
        """Receive all that there is."""
        found: list[bytes] = []
        for _ in range(2):
            await self.world.node.clock.elapse(LONG_MS)
            while messages := await self.world.receive(100):
                found += [message.body for message in messages]
                if self.guarantee is not Guarantee.AT_MOST_ONCE:
                    assert await self.world.acknowledge(*messages) == [None] * len(messages)
        dead = await self.world.bodies(1000, queue=DEAD) if DEAD in self.world.queues.names() else []
        assert len([*found, *dead]) == len({*found, *dead}), "a message was there twice"
        assert all(self.may_be_dead(self.known[body]) for body in dead), "a dead letter had attempts left"
        missing = 0
        for known in self.known.values():
            is_left = known.body in found or known.body in dead
            assert not (known.is_acknowledged and is_left), "an acknowledged message was left"
            if self.guarantee is Guarantee.AT_MOST_ONCE:
                assert not (known.lent and is_left), "a message was handed out twice"
                missing += known.is_sent and not is_left and not known.lent
            elif known.is_sent and not is_left:
                assert known.is_acknowledged or known.may_be_acknowledged, f"lost: {known}"
        assert missing <= self.lost_at_most, "more was lost than was being handed out"


TestNodeMachine = NodeMachine.TestCase
TestNodeMachine.settings = settings(
    max_examples=2000 if os.environ.get("HEADRACE_LONG") else 40,
    stateful_step_count=30,
    deadline=None,
)
