"""Looking at a queue without taking anything from it: its messages in any state, and why one stands where it does."""

import re

from headrace.broker.queue.done import PAGE_BYTES, browse_done, find_done
from headrace.broker.queue.fate import Fate, find_fate
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader, Wanted
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Browsed, BrowsePage, Explanation, MessageState
from headrace.folds.queue.view import Facts, State, blocker, facts, iterate, key_facts
from headrace.model.errors import CorruptLogError, InvalidRequestError, UnknownMessageError
from headrace.model.message import message_id
from headrace.wire.message import StoredMessage

COUNT_MAX = 1000

_ID = re.compile(r"(\d{1,5})-(\d{1,18})", re.ASCII)


async def browse(
    live: LiveQueue, loader: Loader, *, state: MessageState | None, count_max: int, after: str | None
) -> BrowsePage:
    """A page of messages, partition by partition, in order of offset. `after` is the `next` of the page before."""
    if not 1 <= count_max <= COUNT_MAX:
        raise InvalidRequestError(f"a page has 1 to {COUNT_MAX} messages, not {count_max}")
    index, offset = (0, -1) if after is None else parse_place(after)
    if state is MessageState.ACKNOWLEDGED:
        return await browse_done(live, loader, count_max=count_max, index=index, offset=offset)
    wanted: list[Wanted] = []
    for partition in live.partitions:
        if partition.index < index:
            continue
        if partition.index > index:
            offset = -1
        fold = partition.advanced_fold()
        kind = None if state is None else State(state.value)
        left = count_max + 1 - len(wanted)
        upto = partition.partition.high_watermark
        found = iterate(fold, after=offset, state=kind, count_max=left)
        wanted += [Wanted(partition, offset) for offset in found if offset < upto]
        if len(wanted) > count_max:
            break
    try:
        messages, read_count = await loader.read_first(wanted[:count_max], bytes_max=PAGE_BYTES)
    except CorruptLogError:  # whose partition is offline now
        return await browse(live, loader, state=state, count_max=count_max, after=after)
    page = wanted[:read_count]
    shown = [
        _browsed(partition, messages[partition.index, offset], known)
        for partition, offset in page
        if (partition.index, offset) in messages and (known := facts(partition.fold, offset)) is not None
    ]
    is_more = len(wanted) > len(page)
    last = page[-1] if is_more else None
    return BrowsePage(
        messages=shown,
        next=None if last is None else message_id(last.partition.index, last.offset),
        offline=live.partitions.offline(),
    )


async def explain(live: LiveQueue, loader: Loader, *, id: str | None, key: bytes | None) -> Explanation:
    if (id is None) == (key is None):
        raise InvalidRequestError("name one thing to explain: a message's id or a key")
    if id is not None:
        index, offset = parse_place(id)
        if index >= live.partitions.count:
            raise UnknownMessageError(f"queue {live.queue.name} has no partition {index}")
        partition = live.partitions.at(index)
        known = facts(partition.advanced_fold(), offset)
        if known is None:
            return await _done(live, partition, loader, offset)
        text = f"the message {_sentence(partition, known)}"
        since_ms = await _since_ms(live, partition, loader, known)
        return _explained(partition, known, since_ms, text, 0)
    assert key is not None
    if not live.queue.config.ordered:
        raise InvalidRequestError(f"queue {live.queue.name} is not ordered; no key of it is ever blocked")
    for partition in live.partitions:
        found = key_facts(partition.advanced_fold(), key)
        if found is not None:
            sentence = _sentence(partition, found.front)
            text = f"the first message of this key {sentence}; {found.waiting_count} wait behind it"
            since_ms = await _since_ms(live, partition, loader, found.front)
            return _explained(partition, found.front, since_ms, text, found.waiting_count)
    live.partitions.check_all()  # one that is offline may hold some
    raise UnknownMessageError("no message of this key is in the queue")


async def _done(live: LiveQueue, partition: PartitionQueue, loader: Loader, offset: int) -> Explanation:
    found = None
    if partition.partition.start_offset <= offset < partition.partition.high_watermark:
        try:
            found = await find_done(partition, loader, offset)
        except CorruptLogError:
            raise live.partitions.refusal(partition.index) from None
    if found is None:
        place = message_id(partition.index, offset)
        raise UnknownMessageError(f"there is no message {place}; if there was one, it is done and was cleaned away")
    fate = await find_fate(partition, loader, offset)
    return Explanation(
        state=MessageState.DONE if fate is None else fate.state,
        text=_fate_text(live, fate),
        id=message_id(partition.index, offset),
        partition=partition.index,
        offset=offset,
        attempt=None,
        since_ms=None if fate is None else fate.at_ms,
        until_ms=None,
    )


def _fate_text(live: LiveQueue, fate: Fate | None) -> str:
    if fate is None:
        return (
            "the message is done: acknowledged, dead-lettered, expired, dropped or purged; which of these, when and "
            "after how many attempts is not in the log any more"
        )
    if fate.state is not MessageState.DEAD_LETTERED:
        return f"the message was {_ENDS[fate.state]} at {fate.at_ms} ms since 1970"
    reason = fate.reason or "its attempts were used up"
    target = live.queue.dead_letter_name
    there = "" if target is None else f"; queue {target} has it, with the details, unless it was taken from there"
    return f"the message was dead-lettered at {fate.at_ms} ms since 1970 ({reason}){there}"


_ENDS = {
    MessageState.ACKNOWLEDGED: "acknowledged",
    MessageState.MOVED: "moved to another queue by a redrive",
    MessageState.EXPIRED: "dropped because its time to live or the queue's retention was over",
    MessageState.DROPPED: "dropped: the queue was full, or it was rejected and the queue has no dead-letter queue,",
    MessageState.PURGED: "purged",
    MessageState.WITHDRAWN: "withdrawn as a repetition of one in another partition",
}


async def _since_ms(live: LiveQueue, partition: PartitionQueue, loader: Loader, known: Facts) -> int | None:
    """Since when a message is where it is. Of one that was given back nobody has kept when that was."""
    if known.since_ms is not None or known.attempts or known.state is State.DYING:
        return known.since_ms
    try:
        found = await loader.read([Wanted(partition, known.offset)])
    except CorruptLogError:
        raise live.partitions.refusal(partition.index) from None
    message = found.get((partition.index, known.offset))
    if message is None or known.state is State.DELAYED:
        return None if message is None else message.sent_ms
    return message.sent_ms + (live.queue.config.delay_ms if message.delay_ms is None else message.delay_ms)


def _explained(partition: PartitionQueue, known: Facts, since_ms: int | None, text: str, waiting: int) -> Explanation:
    return Explanation(
        state=MessageState(known.state.value),
        text=text,
        id=message_id(partition.index, known.offset),
        partition=partition.index,
        offset=known.offset,
        attempt=known.attempts,
        since_ms=since_ms,
        until_ms=known.until_ms,
        waiting=waiting,
    )


def _sentence(partition: PartitionQueue, known: Facts) -> str:
    tried = f", after {known.attempts} attempts, the last at {known.last_ms} ms since 1970" if known.attempts else ""
    match known.state:
        case State.LEASED | State.DELAYED if known.until_ms is None:
            return f"is part of a transaction and waits for its end{tried}"
        case State.LEASED:
            return f"is leased for attempt {known.attempts}, until {known.until_ms} ms since 1970 unless it is extended"
        case State.DELAYED:
            return f"is delayed until {known.until_ms} ms since 1970{tried}"
        case State.BLOCKED:
            front = blocker(partition.fold, known.offset)
            return f"waits behind the message at offset {front} of the same key, which is not done{tried}"
        case State.DYING:
            reason = known.reason or "its attempts are used up"
            reason += f"; the last one failed with {known.error}" if known.error else ""
            return f"is on its way out ({reason}){tried}"
        case State.VISIBLE:
            return f"is visible and goes to the next receive that reaches it{tried}"


def _browsed(partition: PartitionQueue, message: StoredMessage, known: Facts) -> Browsed:
    place = message_id(partition.index, message.offset)
    return Browsed(
        id=place,
        state=MessageState(known.state.value),
        body=message.body,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        sent_ms=message.sent_ms,
        attempt=known.attempts,
        partition=partition.index,
        offset=message.offset,
        due_ms=known.until_ms,
        expires_ms=known.expires_ms,
        first_id=None if message.id == place else message.id,
    )


def parse_place(id: str) -> tuple[int, int]:
    """Partition and offset."""
    match = _ID.fullmatch(id)
    if match is None:
        raise InvalidRequestError(f"{id!r} is no message's place; it looks like 0-1234, partition and offset")
    return int(match[1]), int(match[2])
