"""Settings of a node's logs, the same for all of its partitions."""

import msgspec

MIB = 1024 * 1024


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Each of the node's two journal files. A larger one syncs segments behind less often and replays longer.
    journal_bytes: int = 64 * MIB
    # Appends of this size sync their own segment; smaller ones share the journal's sync.
    journal_append_bytes_max: int = 256 * 1024
    # A partition is checkpointed after so many bytes, which bounds what an unclean start reads again.
    checkpoint_bytes: int = 64 * MIB
    # A closed segment of a topic with durability `memory` is synced this long after its end.
    memory_settle_ms: int = 35_000
    # How often partitions are looked at for checkpoints, rolls by age and retention.
    maintenance_interval_ms: int = 5_000
    # Topics with durability `replicated` are synced behind this often.
    flush_interval_ms: int = 1_000
    # Sends are refused while the file system has less than this free; acknowledgements and deletes go on.
    disk_reserve_bytes: int = 256 * MIB
    disk_check_interval_ms: int = 1_000
    # Held back in a file, so that acknowledgements, deletions and a start have space where nothing else is free.
    disk_ballast_bytes: int = 32 * MIB
    # Segment files kept open. The rest of the process's descriptors is for connections.
    open_files_max: int = 4096
    # A segment is cleaned when less than half of it is live, and at least this much would be gained.
    clean_gain_bytes_min: int = 64 * 1024
    # Neighbours that are smaller than this together are merged, so that what is left of many files is few.
    clean_merge_bytes: int = MIB
    # The segment that is written to is closed for cleaning once it is this large and more than half of it is dead.
    clean_active_bytes: int = 4 * MIB
    # Memory for the keys of one pass of compaction: 24 bytes a key, at a load of 0.7. A log with more keys than that in
    # its dirty part takes several passes.
    compact_map_bytes: int = 32 * MIB
    # A producer that has been silent for this long is forgotten.
    producer_expiry_ms: int = 24 * 60 * 60 * 1000
