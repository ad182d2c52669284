"""Judges a history by what the documentation promises. It knows clients' calls and answers, and nothing of a node.

Streams: a record that was acknowledged is where its client was told, once and in order from idempotent producers; what
was read along the way is still the same; a transaction is there whole or not at all. Queues: what was sent is received;
what was acknowledged does not come again; exactly once, no attempt comes twice and only one acknowledgement succeeds;
by key, a message comes after the one before it was acknowledged.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.history import Delivered, History, Queue, Read, Sent, Topic

_SHOWN_MAX = 5
_ORDER_WINDOW = 50  # several times what one receive may hold


@dataclass
class Verdict:
    """What was found: sentences by kind of violation, and counts of what was looked at."""

    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        looked = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        if not self.violations:
            return f"{looked}: no violation"
        lines = [f"{looked}:"]
        for kind, found in self.violations.items():
            lines.append(f"  {kind}: {len(found)}")
            lines += [f"    {one}" for one in found[:_SHOWN_MAX]]
        return "\n".join(lines)

    def has(self, kind: str) -> bool:
        return kind in self.violations


def check(history: History) -> Verdict:
    verdict = Verdict()
    for trouble in history.trouble:
        verdict.violations["trouble"].append(trouble)
    for queue in history.queues:
        _check_queue(queue, history, verdict)
    for topic in history.topics:
        _check_topic(topic, history, verdict)
    return verdict


# Queues.


def _check_queue(queue: Queue, history: History, verdict: Verdict) -> None:
    sent = {one.body: one for one in history.sent if one.channel == queue.name}
    by_body: dict[str, list[Delivered]] = defaultdict(list)
    for delivery in history.delivered:
        if delivery.queue == queue.name:
            by_body[delivery.body].append(delivery)
    verdict.counts["messages sent to queues"] += len(sent)
    verdict.counts["deliveries"] += sum(map(len, by_body.values()))
    found = verdict.violations
    for body, call in sent.items():
        if call.outcome == "yes" and body not in by_body:
            found["lost"].append(f"{queue.name}: {body} was acknowledged to its sender and never delivered")
        if call.outcome == "no" and body in by_body:
            found["phantom"].append(f"{queue.name}: {body} was refused and delivered")
    for body, deliveries in by_body.items():
        if body not in sent:
            found["phantom"].append(f"{queue.name}: {body} was delivered and never sent")
        for delivery in _after_done(deliveries, queue.quiet_after_s):
            found["redelivered"].append(
                f"{queue.name}: {body}, attempt {delivery.attempt}, came again after it was acknowledged"
            )
        if queue.deduplicated and len({delivery.message_id for delivery in deliveries}) > 1:
            found["doubled"].append(f"{queue.name}: {body} was stored more than once")
        if queue.exactly_once:
            found_here = list(_broken_exactly_once(deliveries))
            if found_here:
                found["exactly once"] += [f"{queue.name}: {body} {what}" for what in found_here]
    if queue.by_key:
        for what in _broken_order(list(sent.values()), by_body):
            found["order by key"].append(f"{queue.name}: {what}")


def _after_done(deliveries: Sequence[Delivered], quiet_after_s: float | None) -> Iterator[Delivered]:
    """Deliveries by receives that were made after an acknowledgement of the message had been answered with success."""
    done = min(
        (
            one.acknowledgement.answered
            for one in deliveries
            if one.acknowledgement is not None and one.acknowledgement.outcome == "yes"
            if quiet_after_s is None or one.acknowledgement.answered_s - one.asked_s < quiet_after_s
        ),
        default=None,
    )
    if done is not None:
        yield from (delivery for delivery in deliveries if delivery.asked > done)


def _broken_exactly_once(deliveries: Sequence[Delivered]) -> Iterator[str]:
    attempts = Counter((one.message_id, one.attempt) for one in deliveries)
    yield from (
        f"had attempt {attempt} delivered {count} times" for (_, attempt), count in attempts.items() if count > 1
    )
    successes = sum(one.acknowledgement is not None and one.acknowledgement.outcome == "yes" for one in deliveries)
    if successes > 1:
        yield f"was acknowledged successfully {successes} times"


def _broken_order(sent: Sequence[Sent], by_body: dict[str, list[Delivered]]) -> Iterator[str]:
    """Messages of one sender that came while one before them was neither acknowledged nor in the same receive.

    Each is compared with the next few, which is enough: where a message came too early by more than that, some message
    in between came too early as well.
    """
    by_sender: dict[str, list[Sent]] = defaultdict(list)
    for call in sent:
        if call.body in by_body:
            by_sender[call.sender].append(call)
    for calls in by_sender.values():
        calls.sort(key=lambda call: call.number)
        for place, earlier in enumerate(calls):
            deliveries = by_body[earlier.body]
            together = {one.asked for one in deliveries}
            done = min(
                (one.acknowledgement.asked for one in deliveries if one.acknowledgement is not None), default=None
            )
            for later in calls[place + 1 : place + 1 + _ORDER_WINDOW]:
                first = min(by_body[later.body], key=lambda delivery: delivery.answered)
                if first.asked not in together and (done is None or done > first.answered):
                    yield f"{later.body} was delivered while {earlier.body} was not done"


# Streams.


def _check_topic(topic: Topic, history: History, verdict: Verdict) -> None:
    sent = [one for one in history.sent if one.channel == topic.name]
    final = [read for read in history.final if read.topic == topic.name]
    verdict.counts["records sent"] += len(sent)
    verdict.counts["records read"] += len(final)
    found = verdict.violations
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for read in final:
        places[read.body].append((read.partition, read.offset))
    _check_reads(topic, history.along, final, verdict)
    known = {call.body for call in sent}
    found_phantoms = [body for body in places if body not in known]
    if found_phantoms:
        found["phantom"] += [f"{topic.name}: {body} was read and never sent" for body in found_phantoms]
    for call in sent:
        if call.transaction is None and call.outcome == "yes":
            told = (call.partition, call.offset)
            verdict.counts["reports without an offset"] += call.offset is None
            if not places[call.body]:
                found["lost"].append(f"{topic.name}: {call.body} was acknowledged at {told} and is gone")
            elif call.offset is not None and told not in places[call.body]:
                found["moved"].append(f"{topic.name}: {call.body} was acknowledged at {told}: {places[call.body]}")
        if call.outcome == "no" and places[call.body] and call.transaction is None:
            found["phantom"].append(f"{topic.name}: {call.body} was refused and is there")
    if topic.idempotent:
        for body, where in places.items():
            if len(where) > 1:
                found["doubled"].append(f"{topic.name}: {body} is at {where}")
        for what in _out_of_order(sent, final):
            found["order"].append(f"{topic.name}: {what}")
    _check_transactions(topic, history, sent, places, verdict)


def _check_reads(topic: Topic, along: Sequence[Read], final: Sequence[Read], verdict: Verdict) -> None:
    stored = {(read.partition, read.offset): read.body for read in final}
    for read in along:
        if read.topic == topic.name and stored.get((read.partition, read.offset)) != read.body:
            verdict.violations["changed"].append(
                f"{topic.name}: {read.body} was read at {read.partition}/{read.offset}, where there is now "
                f"{stored.get((read.partition, read.offset))}"
            )


def _out_of_order(sent: Sequence[Sent], final: Sequence[Read]) -> Iterator[str]:
    number = {call.body: (call.sender, call.number) for call in sent}
    last: dict[tuple[int, str], int] = {}
    for read in sorted(final, key=lambda read: (read.partition, read.offset)):
        if read.body in number:
            sender, own = number[read.body]
            if own < last.get((read.partition, sender), -1):
                yield f"{read.body} is behind number {last[read.partition, sender]} of its sender"
            last[read.partition, sender] = own


def _check_transactions(
    topic: Topic, history: History, sent: Sequence[Sent], places: dict[str, list[tuple[int, int]]], verdict: Verdict
) -> None:
    bodies: dict[str, list[str]] = defaultdict(list)
    for call in sent:
        if call.transaction is not None:
            bodies[call.transaction].append(call.body)
    for transaction in history.transactions:
        own = bodies[transaction.id]
        there = [body for body in own if places[body]]
        verdict.counts["transactions"] += bool(own)
        whole = transaction.outcome == "yes" and len(there) < len(own)
        none = transaction.outcome == "no" and there
        either = transaction.outcome == "maybe" and 0 < len(there) < len(own)
        if whole or none or either:
            verdict.violations["transaction"].append(
                f"{topic.name}: of the {len(own)} records of {transaction.id}, which was answered with "
                f"{transaction.outcome!r}, {len(there)} are there"
            )
