"""Headers of batches that a producer might send."""

from headrace.model.batch import BatchHeader


def batch(
    sequence: int, *, count: int = 1, producer: int = 7, epoch: int = 0, offset: int = 0, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=1000,
        max_timestamp_ms=1000 + offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )
