"""A join with several faults is refused for the one that Kafka looks at first: clients act on that one."""

from typing import Any

import msgspec
import pytest
from tests.broker.group.world import CONFIG, GroupNode
from tests.broker.node import run

from headrace.model.errors import (
    FencedInstanceError,
    GroupError,
    GroupFullError,
    HeadraceError,
    InconsistentProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    UnknownMemberError,
)

NO_GROUP = {"group": ""}
SHORT_SESSION = {"session_timeout_ms": 1}
NO_PROTOCOLS: dict[str, Any] = {"protocols": ()}
OTHER_PROTOCOL = {"protocols": (("sticky", b""),)}
STRANGER = {"member_id": "stranger"}
OTHER_GROUP = {"group": "unknown"}
TAKEN_INSTANCE = {"instance_id": "i"}
NEW_INSTANCE = {"instance_id": "j"}
ID_REQUIRED = {"is_id_required": True}

# A stable group `g` has one static member with the instance id `i`; whether it has room for more; what a join says.
REFUSALS: list[tuple[type[HeadraceError], bool, list[dict[str, Any]]]] = [
    (InvalidGroupIdError, False, [NO_GROUP, SHORT_SESSION, STRANGER, NO_PROTOCOLS, TAKEN_INSTANCE]),
    (InvalidSessionTimeoutError, False, [SHORT_SESSION, STRANGER, NO_PROTOCOLS, TAKEN_INSTANCE]),
    (InvalidSessionTimeoutError, True, [OTHER_GROUP, SHORT_SESSION, STRANGER, NO_PROTOCOLS]),
    (UnknownMemberError, True, [OTHER_GROUP, STRANGER, NO_PROTOCOLS]),
    (InconsistentProtocolError, True, [OTHER_GROUP, NO_PROTOCOLS, ID_REQUIRED]),
    (GroupFullError, False, [STRANGER, OTHER_PROTOCOL, TAKEN_INSTANCE]),
    (GroupFullError, False, [STRANGER, TAKEN_INSTANCE]),
    (GroupFullError, False, [OTHER_PROTOCOL, ID_REQUIRED]),
    (InconsistentProtocolError, True, [STRANGER, OTHER_PROTOCOL, TAKEN_INSTANCE]),
    (InconsistentProtocolError, True, [STRANGER, OTHER_PROTOCOL]),
    (InconsistentProtocolError, True, [OTHER_PROTOCOL, ID_REQUIRED]),
    (FencedInstanceError, True, [STRANGER, TAKEN_INSTANCE]),
    (UnknownMemberError, True, [STRANGER, NEW_INSTANCE]),
    (UnknownMemberError, True, [STRANGER]),
    (MemberIdRequiredError, True, [ID_REQUIRED]),
]


@pytest.mark.parametrize(("expected", "has_room", "faults"), REFUSALS)
def test_a_join_is_refused_for_the_first_of_its_faults(
    expected: type[HeadraceError], has_room: bool, faults: list[dict[str, Any]]
) -> None:
    async def main() -> None:
        node = GroupNode(config=msgspec.structs.replace(CONFIG, members_max=2 if has_room else 1))
        await node.start()
        await node.join(instance_id="i")
        asked: dict[str, Any] = {name: value for fault in faults for name, value in fault.items()}
        with pytest.raises((GroupError, expected)) as refused:
            await node.join(**asked)
        assert type(refused.value) is expected
        node.abandon()

    run(main())


def test_a_static_member_comes_back_to_its_place_in_a_full_group() -> None:
    async def main() -> None:
        node = GroupNode(config=msgspec.structs.replace(CONFIG, members_max=1))
        await node.start()
        first = await node.join(instance_id="i")
        again = await node.join(instance_id="i")
        assert again.member_id != first.member_id
        node.abandon()

    run(main())


@pytest.mark.parametrize("fault", [NO_GROUP, SHORT_SESSION])
def test_a_join_that_cannot_be_makes_no_internal_topic(fault: dict[str, Any]) -> None:
    async def main() -> None:
        node = await GroupNode().start()
        with pytest.raises(GroupError):
            await node.join(**fault)
        assert not node.catalog.topics
        node.abandon()

    run(main())
