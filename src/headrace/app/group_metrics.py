"""What a node counts about its groups. `docs/metrics.md` says what each series is for."""

import asyncio
from collections import Counter

from headrace.app.exposition import Exposition, by_label
from headrace.broker.group.port import GroupPort
from headrace.model.errors import HeadraceError

OTHER_GROUPS = "(other)"

_GROUPS_A_TURN = 64
# Group ids are whatever clients send; a label need not be as long as that.
_NAME_LENGTH_MAX = 200


async def write_groups(out: Exposition, groups: GroupPort, *, names_max: int) -> None:
    """The first groups by id have series of their own; the others are added up."""
    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter()
    lags: Counter[str] = Counter()
    for at, group in enumerate(await groups.list_groups()):
        if at % _GROUPS_A_TURN == _GROUPS_A_TURN - 1:
            await asyncio.sleep(0)
        shown = group.group_id[:_NAME_LENGTH_MAX] if at < names_max else OTHER_GROUPS
        states[group.kind.value, group.state] += 1
        members[shown] += group.member_count
        try:
            lags[shown] += sum(partition.lag for partition in await groups.lag(group.group_id))
        except HeadraceError:
            continue  # deleted meanwhile, or its partition is offline, of which other series tell
    out.family(
        "headrace_groups",
        "gauge",
        "Groups on this node, by kind and state.",
        [({"kind": kind, "state": state}, count) for (kind, state), count in sorted(states.items())],
    )
    out.family("headrace_group_members", "gauge", "Members of a group.", by_label("group", members))
    out.family(
        "headrace_group_lag_messages",
        "gauge",
        "Offsets between what a group has committed and the ends of those partitions, added up.",
        by_label("group", lags),
    )
