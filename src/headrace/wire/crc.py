"""CRC-32C (Castagnoli), the checksum of batches, indexes, snapshots and the journal."""

from fastcrc.crc32 import iscsi

from headrace.model.batch import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """Checksum of the data, going on from an earlier value."""
    result: int = iscsi(data, value)
    return result
