"""What goes over the wire about queues, as structs; those about messages are in `form`."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.broker.queue.port import (
    Browsed,
    OfflinePartition,
    QueueCounts,
    QueueDescription,
    Redrive,
    RedriveFilter,
    RedriveState,
)
from headrace.gateways.rest.config_form import ConfigForm, Name, shown
from headrace.gateways.rest.form import FIRST_ID, Base64, HeaderValue, Whole
from headrace.gateways.rest.value import shown_body, shown_headers, shown_text

RATE_MAX = 1_000_000
PARTITION_MAX = 9_999
PLACES_MAX = 10_000  # a redrive is written down with its filter

Place = Annotated[str, Meta(pattern=r"^[0-9]{1,5}-[0-9]{1,18}$", description="partition and offset, such as 0-1234")]


class QueueForm(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, what it promises and what it holds."""

    name: str
    partitions: int
    durability: str
    config: ConfigForm
    counts: Annotated[QueueCounts, Meta(description="of the partitions that are at work")]
    offline: list[OfflinePartition]
    created_ms: int
    modified_ms: int


class ListedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's name, and with `describe` everything else about it."""

    name: str
    partitions: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    config: ConfigForm | UnsetType = UNSET
    counts: QueueCounts | UnsetType = UNSET
    offline: list[OfflinePartition] | UnsetType = UNSET
    created_ms: int | UnsetType = UNSET
    modified_ms: int | UnsetType = UNSET


class QueueList(msgspec.Struct, frozen=True):
    """Queues by name. Pass `next` back as `after` to go on."""

    queues: list[ListedQueue]
    next: str | None


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """A request that has nothing to say."""


class Purged(msgspec.Struct, frozen=True):
    purged: int


class BrowsedMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that was looked at and not taken."""

    id: Annotated[str, Meta(description="its place in this queue: partition and offset")]
    state: str
    body: Any
    encoding: str | None = None
    key: str | Base64 | None = None
    headers: dict[str, HeaderValue] = {}
    priority: int
    sent_ms: int
    attempt: Annotated[int | None, Meta(description="null where it is done, and not known any more")]
    partition: int
    offset: int
    due_ms: int | None = None
    expires_ms: int | None = None
    first_id: Annotated[str, Meta(description=FIRST_ID)] | None = None


class BrowsedMessages(msgspec.Struct, frozen=True):
    """Messages in any state. Pass `next` back as `after` to go on."""

    messages: list[BrowsedMessage]
    next: str | None
    offline: list[OfflinePartition]


class PackedBrowsed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that was looked at and not taken, in MessagePack."""

    id: str
    state: str
    body: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...]
    priority: int
    sent_ms: int
    attempt: int | None = None
    partition: int
    offset: int
    due_ms: int | None = None
    expires_ms: int | None = None
    first_id: str | None = None


class PackedBrowsedMessages(msgspec.Struct, frozen=True):
    """Messages in any state, in MessagePack. Pass `next` back as `after` to go on."""

    messages: list[PackedBrowsed]
    next: str | None
    offline: list[OfflinePartition]


class FilterForm(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters go back; everything that is said must hold."""

    reason: Annotated[str, Meta(description="a part of it")] | None = None
    key: str | None = None
    source: Annotated[str, Meta(description="the queue that they came from")] | None = None
    sent_before_ms: Whole | None = None
    sent_after_ms: Whole | None = None
    body_contains: str | None = None
    places: Annotated[tuple[Place, ...], Meta(max_length=PLACES_MAX)] | None = None

    def filter(self) -> RedriveFilter:
        return RedriveFilter(
            reason=self.reason,
            key=self.key,
            source=self.source,
            sent_before_ms=None if self.sent_before_ms is None else int(self.sent_before_ms),
            sent_after_ms=None if self.sent_after_ms is None else int(self.sent_after_ms),
            body_contains=self.body_contains,
            places=self.places,
        )


class NewRedrive(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters go back, where to, and how fast. Without a target, to the queues that they came from."""

    target: Name | None = None
    filter: FilterForm = msgspec.field(default_factory=FilterForm)
    rate: Annotated[float, Meta(multiple_of=1, ge=1, le=RATE_MAX, description="messages a second")] | None = None


class RedriveForm(msgspec.Struct, frozen=True, kw_only=True):
    """A redrive and how far it is."""

    id: str
    queue: str
    target: str | None
    filter: RedriveFilter
    rate: int | None
    state: RedriveState
    moved: int
    skipped: int
    total: int
    started_ms: int
    ended_ms: int | None
    failure: str | None
    failure_code: str | None


class Redrives(msgspec.Struct, frozen=True):
    """Newest first."""

    redrives: list[RedriveForm]


class ReaderPositions(msgspec.Struct, forbid_unknown_fields=True):
    """For each partition, the next offset that the reader wants."""

    positions: dict[Annotated[int, Meta(ge=0, le=PARTITION_MAX)], Whole] = {}


class ReaderForm(msgspec.Struct, frozen=True):
    name: str
    positions: dict[int, int]


class Readers(msgspec.Struct, frozen=True):
    readers: list[ReaderForm]


def described(description: QueueDescription) -> QueueForm:
    queue = description.queue
    return QueueForm(
        name=queue.name,
        partitions=description.partition_count,
        durability=description.durability,
        config=shown(queue.config),
        counts=description.counts,
        offline=list(description.offline),
        created_ms=queue.created_ms,
        modified_ms=queue.modified_ms,
    )


def listed(description: QueueDescription) -> ListedQueue:
    return ListedQueue(**msgspec.structs.asdict(described(description)))


def browsed(message: Browsed) -> BrowsedMessage:
    body, encoding = shown_body(message.body, message.headers)
    return BrowsedMessage(
        id=message.id,
        state=message.state.value,
        body=body,
        encoding=encoding,
        key=None if message.key is None else shown_text(message.key),
        headers=shown_headers(message.headers),
        priority=message.priority,
        sent_ms=message.sent_ms,
        attempt=message.attempt,
        partition=message.partition,
        offset=message.offset,
        due_ms=message.due_ms,
        expires_ms=message.expires_ms,
        first_id=message.first_id,
    )


def browsed_packed(message: Browsed) -> PackedBrowsed:
    return PackedBrowsed(
        id=message.id,
        state=message.state.value,
        body=message.body,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        sent_ms=message.sent_ms,
        attempt=message.attempt,
        partition=message.partition,
        offset=message.offset,
        due_ms=message.due_ms,
        expires_ms=message.expires_ms,
        first_id=message.first_id,
    )


def redriven(redrive: Redrive) -> RedriveForm:
    return RedriveForm(
        id=redrive.id,
        queue=redrive.queue,
        target=redrive.target,
        filter=redrive.filter,
        rate=redrive.rate_per_second,
        state=redrive.state,
        moved=redrive.moved,
        skipped=redrive.skipped,
        total=redrive.total,
        started_ms=redrive.started_ms,
        ended_ms=redrive.ended_ms,
        failure=redrive.failure,
        failure_code=redrive.failure_code,
    )
