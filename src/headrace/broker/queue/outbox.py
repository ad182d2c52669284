"""Messages on their way into one partition of a queue.

What is sent to a queue in one turn of the loop becomes one batch, whoever sent it. What repeats something of the same
turn, or something whose place is known to the fold, is not stored again: it gets the first one's answer, and not before
the first one gets it. A *share* is what is stored or known as a whole: the messages of one request that go into this
partition, or a single message that is known by itself. A share is never cut, so one whose first message is known was
stored whole.

Most sends are one message. Such a send is one object all the way: `Single` is its share here and the promise that its
sender waits for, so between the two there is nothing to be made or looked up.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.request import Request
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.instant import Instant
from headrace.log.partition_log import Incoming
from headrace.model.batch import read_header
from headrace.model.errors import HeadraceError
from headrace.model.message import MOVE_HEADER, REQUEST_HEADER, Message, Properties, Sent, message_id
from headrace.wire.message import REQUEST_PREFIX, encode_messages

# What a batch of joined messages may hold, so that reading one message costs little. One share may hold more.
_BATCH_BYTES = 256 * 1024
_BATCH_COUNT = 1000
# Here, ids of three kinds are in one table. The fold has one for moves, and one for the other two.
_MOVE_PREFIX = b"move:"
_MESSAGE_PREFIX = b"message:"

Outcome = Sent | HeadraceError

# The tuple's own constructor: that of a named one is a Python function, at twice the time.
_make = tuple.__new__


class Several(NamedTuple):
    """Messages of one request that are stored one after the other, and where their outcomes are awaited."""

    messages: Sequence[Message]
    gather: Gather[Outcome]
    places: Sequence[int]
    id: bytes | None = None  # by which a repetition is known

    @property
    def body_bytes(self) -> int:
        return sum([len(message[0]) for message in self.messages])

    def answer(self, partition: int, base: int, is_duplicate: bool) -> None:
        self.gather.set_all(
            self.places,
            [
                _make(Sent, (message_id(partition, offset), partition, offset, is_duplicate))
                for offset in range(base, base + len(self.places))
            ],
        )

    def foresee_at(self, partition: int, base: int) -> None:
        """Answers to many messages at once are made soon enough."""

    def refuse(self, error: HeadraceError) -> None:
        self.gather.set_all(self.places, [error] * len(self.places))


class Single(Promise[Sent], eq=False):
    """A message that was sent alone, and the promise of where it went."""

    messages: tuple[Message]
    body_bytes: int
    id: bytes | None = None  # by which a repetition is known

    def foresee_at(self, partition: int, base: int) -> None:
        """It was written there, and is not durable yet."""
        self.foresee(_make(Sent, (message_id(partition, base), partition, base, False)))

    def answer(self, partition: int, base: int, is_duplicate: bool) -> None:
        self.keep(self.foreseen or _make(Sent, (message_id(partition, base), partition, base, is_duplicate)))

    def refuse(self, error: HeadraceError) -> None:
        self.fail(error)


class Listener(NamedTuple):
    """Somebody who sent nothing and wants to know what becomes of what another one sent."""

    told: Callable[[HeadraceError | None], None]

    def answer(self, partition: int, base: int, is_duplicate: bool) -> None:
        self.told(None)

    def refuse(self, error: HeadraceError) -> None:
        self.told(error)


Share = Several | Single


class Batch(NamedTuple):
    """Shares that are written together."""

    shares: Sequence[Share]
    messages: list[Message]
    properties: dict[int, Properties]
    incoming: Incoming
    sent_ms: int


class Outbox:
    def __init__(self, fold: QueueFold) -> None:
        self._fold = fold
        self._shares: list[Share] = []
        self._count = 0
        self._bytes = 0
        # Shares that are not written yet, by id, and who else sent the same.
        self._repeats: dict[bytes, list[Share | Listener]] = {}
        self._batches: list[Batch] = []

    def __bool__(self) -> bool:
        return bool(self._shares)

    @property
    def count(self) -> int:
        """Messages that were taken and have not arrived yet, those in the batches of this turn included."""
        return self._count

    def add(self, share: Share, *, now: Instant) -> int | None:
        """Take a share, unless it repeats one whose offset is known, which is returned."""
        if share.id is not None:
            repeats = self._repeats.get(share.id)
            if repeats is not None:
                repeats.append(share)
                return None
            offset = self._known(share.id, now)
            if offset is not None:
                return offset
            self._repeats[share.id] = []
        self.take(share)
        return None

    def take(self, share: Share) -> bool:
        """Take a share that repeats nothing. Whether a turn is to be asked for: what joined others waits for theirs."""
        shares = self._shares
        shares.append(share)
        self._count += len(share.messages)
        self._bytes += share.body_bytes
        return len(shares) == 1 or self._bytes >= _BATCH_BYTES

    @property
    def is_large(self) -> bool:
        """Whether what was taken is worth a write of its own, beside one that is under way."""
        return self._bytes >= _BATCH_BYTES

    def knows(self, id: bytes, *, now: Instant) -> bool:
        """Whether a share of this id would repeat something that is in the queue or on its way there."""
        return id in self._repeats or self._known(id, now) is not None

    def tell_sent(self, id: bytes, told: Callable[[HeadraceError | None], None]) -> bool:
        """Tell once the message of this id that was taken and not written is committed. Whether there is one."""
        repeats = self._repeats.get(_MESSAGE_PREFIX + id)
        if repeats is None:
            return False
        repeats.append(Listener(told))
        return True

    def _known(self, id: bytes, now: Instant) -> int | None:
        if id.startswith(_MOVE_PREFIX):
            return self._fold.find_moved(id[len(_MOVE_PREFIX) :])
        return self._fold.find_duplicate(id.removeprefix(_MESSAGE_PREFIX), now=now)

    def build(self, *, wall_ms: int) -> list[Incoming]:
        """Batches of everything that was taken."""
        assert not self._batches, "the last turn's batches were neither written nor refused"
        chunks = _chunks(self._shares, bytes_all=self._bytes, count_all=self._count)
        self._shares, self._bytes = [], 0
        keys = self._fold.config.ordered or self._fold.config.fair
        for chunk in chunks:
            messages = [message for share in chunk for message in share.messages]
            encoded = encode_messages(messages, wall_ms, keys=keys)
            incoming = Incoming(read_header(encoded.batch), memoryview(encoded.batch))
            self._batches.append(Batch(chunk, messages, encoded.properties, incoming, wall_ms))
        return [batch.incoming for batch in self._batches]

    def take_written(self) -> list[Batch]:
        """The batches that were built, which are the caller's from now on."""
        batches, self._batches = self._batches, []
        self._count = 0
        return batches

    def take_repeats(self, shares: Sequence[Share]) -> list[tuple[int, Share | Listener]]:
        """Who sent the same as one of these shares, which were written or refused now, and as which of them."""
        if not self._repeats:
            return []
        return [
            (at, repeat)
            for at, share in enumerate(shares)
            if share.id is not None
            for repeat in self._repeats.pop(share.id, ())
        ]

    def refuse(self, error: HeadraceError) -> None:
        """Tell everybody whose message was to be written."""
        refused = [share for batch in self.take_written() for share in batch.shares] + self._shares
        self._shares, self._count, self._bytes = [], 0, 0
        repeats = self.take_repeats(refused)
        for share in refused:
            share.refuse(error)
        for _, repeat in repeats:
            repeat.refuse(error)


def request_share(
    messages: Sequence[Message], gather: Gather[Outcome], places: Sequence[int], request: Request | None
) -> Share:
    """What one request sends to this partition, known by the request if it has an id."""
    if request is None:
        return Several(messages, gather, places)
    name = request.share_name(len(messages))
    return Several([_named(messages[0], name), *messages[1:]], gather, places, named_id(name))


def message_share(message: Message, gather: Gather[Outcome], place: int, request: Request | None) -> Share:
    """A message by itself, known by its sender's id if it has one, or by its place in a request that has one."""
    id = own_id(message)
    if id is None and request is not None:
        name = request.message_name(place)
        return Several((_named(message, name),), gather, (place,), named_id(name))
    return Several((message,), gather, (place,), id)


def single_share(message: Message) -> Single:
    """A message that was sent alone, known by its sender's id if it has one."""
    id = message.deduplication_id
    return Single((message,), len(message.body), None if id is None else _known_by(id))


def own_id(message: Message) -> bytes | None:
    """What a message is known by that has an id of its own."""
    id = message.deduplication_id
    return None if id is None else _known_by(id)


def _known_by(id: str) -> bytes:
    return _MESSAGE_PREFIX + id.encode()


def named_id(name: bytes) -> bytes:
    """What is known by a name that its request gives it."""
    return REQUEST_PREFIX + name


def _named(message: Message, name: bytes) -> Message:
    return message._replace(headers=((REQUEST_HEADER, name), *message.headers))


def moved_share(message: Message, gather: Gather[Outcome], place: int) -> Share:
    """A copy of another queue's message, known by the id of its move."""
    move_id = next(value for name, value in message.headers if name == MOVE_HEADER)
    return Several((message,), gather, (place,), _MOVE_PREFIX + move_id)


def _chunks(shares: list[Share], *, bytes_all: int, count_all: int) -> Iterator[list[Share]]:
    if bytes_all <= _BATCH_BYTES and count_all <= _BATCH_COUNT:
        yield shares
        return
    start = size = count = 0
    for at, share in enumerate(shares):
        share_bytes = share.body_bytes
        if at > start and (size + share_bytes > _BATCH_BYTES or count + len(share.messages) > _BATCH_COUNT):
            yield shares[start:at]
            start, size, count = at, 0, 0
        size += share_bytes
        count += len(share.messages)
    if start < len(shares):
        yield shares[start:]
