"""What the groups of a node are told at its start."""

from typing import Annotated

import msgspec

from headrace.model.group_setting import GroupConfig
from headrace.model.topic import DAY_MS


class GroupsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Consumer groups and their committed offsets."""

    # Partitions of the internal topic, when it is made. Every group lives in one of them.
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    # How long an empty group waits for more members after its first, so that an application's start is one rebalance.
    initial_rebalance_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 100
    session_timeout_ms_min: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    session_timeout_ms_max: Annotated[int, msgspec.Meta(ge=1)] = 30 * 60 * 1000
    members_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    # Members of share groups: how long one may be silent, how often it is to be heard of, how many a group may have.
    share_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 45_000
    share_heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    share_members_max: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    # A member's metadata, and its assignment.
    member_bytes_max: Annotated[int, msgspec.Meta(ge=1)] = 1024 * 1024
    # Members of consumer groups (KIP-848): how long one may be silent, and how often it is to be heard of.
    consumer_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 45_000
    consumer_heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    # How long a group's offsets are kept once it has no members.
    offsets_retention_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * DAY_MS
    # Between two looks for what has expired.
    expiry_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 60_000
    offset_metadata_bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 4096

    def __post_init__(self) -> None:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min is above session_timeout_ms_max")

    @property
    def of_groups(self) -> GroupConfig:
        """What holds for a group without settings of its own."""
        return GroupConfig(
            consumer_session_timeout_ms=self.consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
            share_session_timeout_ms=self.share_session_timeout_ms,
            share_heartbeat_interval_ms=self.share_heartbeat_interval_ms,
        )
