"""One transactional id: whose it is, and what its producer's transaction is doing."""

from enum import Enum

import msgspec

from headrace.model.ids import PartitionId

EPOCH_MAX = 32_767
# A producer never gets a higher epoch than this; the one above is for the markers that fence it.
EPOCH_LAST = EPOCH_MAX - 1
NO_PRODUCER = -1


class State(Enum):
    """By the names that Kafka's tools show. What Kafka calls dead is forgotten here."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
AT_REST = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one transactional id. Replaced as a whole, so the log's last word is the state."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int  # wall clock
    started_ms: int = -1
    # Prepared: the epoch is above that of the transaction's batches.
    is_bumped: bool = False
    # What the producer had before the last change of its epoch: a repeated request still says so.
    last_producer_id: int = NO_PRODUCER
    last_epoch: int = -1
    # Prepared: the id that the producer gets once it is ended, because its epochs are used up.
    next_producer_id: int = NO_PRODUCER
    # What takes part, each sorted: partitions with messages, queues' partitions with acknowledgements, groups.
    partitions: tuple[PartitionId, ...] = ()
    acknowledgements: tuple[PartitionId, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def is_commit(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= EPOCH_LAST

    @property
    def following(self) -> tuple[int, int]:
        """The producer id and epoch with which the producer goes on after a prepared transaction."""
        if self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch
