"""Share sessions (KIP-932): what a share consumer's requests leave unsaid because an earlier one said it.

A session is of one member of one group. Epoch 0 opens it with all partitions that the member wants, each further
request has the next epoch and says what changed, -1 closes it. Fetches and acknowledgements count together. What the
member holds is remembered beside its session, and stays when the member opens the session anew; when it closes it, all
of that is given back.

Sessions live in memory. After a restart a member is told that there is none, opens one, and what it held before comes
again when the leases are over. A member that vanishes leaves its session behind: the one that was silent for longest
goes when there are too many, if it was silent for long enough.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.broker.group.share_port import Holder
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.host.clock import Clock
from headrace.model.ids import PartitionId

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

_SESSIONS_MAX = 2000
_PARTITIONS_MAX = 10_000
_SILENT_MS_MIN = 60_000


class Member(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.epoch = 0  # of the next request
        self.partitions: dict[PartitionId, None] = {}
        self.heard_ms = 0

    def update(self, wanted: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        self.partitions.update(dict.fromkeys(wanted))
        for place in forgotten:
            self.partitions.pop(place, None)
        if len(self.partitions) > _PARTITIONS_MAX:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"a session has at most {_PARTITIONS_MAX} partitions")


class ShareSessions:
    def __init__(self, let_go: Callable[[Holder], None], clock: Clock, *, count_max: int = _SESSIONS_MAX) -> None:
        self._let_go = let_go
        self._clock = clock
        self._count_max = count_max
        self._sessions: dict[Member, ShareSession] = {}  # who was heard of last stands last

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, member: Member, wanted: Sequence[PartitionId]) -> ShareSession:
        """A new session, in place of the member's last one."""
        last = self._sessions.pop(member, None)
        if last is None:
            self._make_room()
        session = ShareSession(Holder(member.group_id) if last is None else last.holder)
        session.update(wanted, ())
        return self._heard(member, session)

    def go_on(self, member: Member, epoch: int) -> ShareSession:
        """The session of a request that is not the first."""
        session = self._find(member)
        if epoch != session.epoch:
            raise RefusedError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session's next epoch is {session.epoch}, not {epoch}"
            )
        del self._sessions[member]
        return self._heard(member, session)

    def close(self, member: Member) -> ShareSession:
        """Forget the session. What the member holds is given back by `leave`, after its last acknowledgements."""
        session = self._find(member)
        del self._sessions[member]
        return session

    def leave(self, session: ShareSession) -> None:
        self._let_go(session.holder)

    def _find(self, member: Member) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise RefusedError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {member.member_id} of {member.group_id} has no session; open one with epoch 0",
            )
        return session

    def _heard(self, member: Member, session: ShareSession) -> ShareSession:
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.heard_ms = self._clock.monotonic_ms()
        self._sessions[member] = session
        return session

    def _make_room(self) -> None:
        if len(self._sessions) < self._count_max:
            return
        member, session = next(iter(self._sessions.items()))
        if self._clock.monotonic_ms() - session.heard_ms < _SILENT_MS_MIN:
            raise RefusedError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"{self._count_max} share consumers are connected; retry later"
            )
        del self._sessions[member]
        self.leave(session)
