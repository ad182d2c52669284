"""What is known of one partition's groups, and the bytes that a snapshot of it is."""

from typing import NamedTuple

import msgspec

from headrace.folds.group.kind import GroupKind
from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset, PartitionId

FOLD_NAME = "groups"
_STATE_VERSION = 1
_START = Offset(0)
_ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes")


class StoredGroup(NamedTuple):
    kind: GroupKind
    image: bytes
    at_ms: int  # wall time; for a group without members, since when it has none


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int
    serial: int


class Fence(NamedTuple):
    producer_epoch: int
    at_ms: int


Offsets = dict[PartitionId, CommittedOffset]


class Pending:
    """What one producer's open transaction holds here."""

    __slots__ = ("groups", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.groups: dict[str, Offsets] = {}


class GroupState:
    def __init__(self, end_offset: Offset = _START) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.pending: dict[int, Pending] = {}
        self.fences: dict[int, Fence] = {}  # in the order in which they were set
        self.settings: dict[str, dict[str, str]] = {}  # of groups, whether or not they exist
        self.serial = 0
        self.end_offset = end_offset


_Offsets = list[tuple[PartitionId, CommittedOffset]]
_OfGroups = list[tuple[str, _Offsets]]


class _Image(msgspec.Struct, frozen=True, array_like=True):
    groups: list[tuple[str, StoredGroup]]
    offsets: _OfGroups
    pending: list[tuple[int, int, _OfGroups]]
    fences: list[tuple[int, Fence]]  # in the order in which they were set, which is also when they are forgotten
    serial: int
    settings: list[tuple[str, dict[str, str]]] = []


def encode_state(state: GroupState) -> bytes:
    """The same state gives the same bytes, whatever way led to it."""
    image = _Image(
        groups=sorted(state.groups.items()),
        offsets=_dump(state.offsets),
        pending=[
            (producer_id, pending.producer_epoch, _dump(pending.groups))
            for producer_id, pending in sorted(state.pending.items())
        ],
        fences=list(state.fences.items()),
        serial=state.serial,
        settings=[(group_id, dict(sorted(one.items()))) for group_id, one in sorted(state.settings.items())],
    )
    return encode_snapshot(FoldState(FOLD_NAME, _STATE_VERSION, state.end_offset, _ENCODER.encode(image)))


def load_state(state: GroupState, data: Buffer, *, file: str = "groups snapshot") -> None:
    """Fill an empty state from a snapshot. An error says not to use it: replay the log instead."""
    found = decode_snapshot(data, fold=FOLD_NAME, version_max=_STATE_VERSION, file=file)
    try:
        image = msgspec.msgpack.decode(found.payload, type=_Image)
    except msgspec.DecodeError as error:
        raise CorruptLogError(file=file, position=0, expected="groups' state", found=error, what="content") from error
    state.end_offset = found.end_offset
    state.groups = dict(image.groups)
    state.offsets = _load(image.offsets)
    for producer_id, producer_epoch, groups in image.pending:
        pending = state.pending[producer_id] = Pending(producer_epoch)
        pending.groups = _load(groups)
    state.fences = dict(image.fences)
    state.serial = image.serial
    state.settings = dict(image.settings)


def _dump(groups: dict[str, Offsets]) -> _OfGroups:
    return [(group_id, sorted(offsets.items())) for group_id, offsets in sorted(groups.items())]


def _load(groups: _OfGroups) -> dict[str, Offsets]:
    return {group_id: dict(offsets) for group_id, offsets in groups}
