"""The kinds of group. All of them commit offsets in one way; each has its own rules of membership."""

from enum import Enum


class GroupKind(Enum):
    """By the names that ListGroups shows."""

    CLASSIC = "classic"  # JoinGroup and SyncGroup: a member shares the partitions out
    CONSUMER = "consumer"  # KIP-848: the coordinator does
    SHARE = "share"  # KIP-932: members share messages, not partitions
