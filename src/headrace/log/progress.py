"""How far one partition has come: the offsets that everything else is measured against, and the order that they keep.

    start <= committed <= end
    cleaned <= older snapshot <= committed
    recovery <= durable <= end

| offset | what holds below it | moved by |
| --- | --- | --- |
| start | no message is served | retention, deletion of records |
| cleaned | headrace's own entries may be gone, and batches have gaps | retention, cleaning, compaction |
| older | every fold has two durable snapshots at or above it | the publication of snapshots |
| committed | no failover takes an entry back | a rule of `replication`, which the log's owner calls |
| recovery | the segments are synced and a checkpoint says so | checkpoints |
| durable | the segments or the node's journal are synced | the committer |
| end | there are entries | append, truncation |

Whatever removes something stays below the committed offset, because an entry above it may have to be replaced by
another leader's. What is durable here says nothing about that. `older` is the floor of cleaning and of retention: a
fold can always be restored from either of its two snapshots and the log behind it.

`start` may stand above `cleaned` and `older`. Deleted records are not served any more from the moment of the request,
while the entries between them stay until the folds have published two snapshots that cover them.
"""

from headrace.model.ids import Offset

NO_SNAPSHOT = Offset(-1)  # no fold has one, so none has to be restored from one


class Progress:
    """Read the offsets as attributes; every move is a call, which asserts the order."""

    __slots__ = ("cleaned", "committed", "durable", "end", "older", "recovery", "start")

    def __init__(self, *, start: Offset, cleaned: Offset, end: Offset) -> None:
        self.start = start
        self.cleaned = cleaned
        self.older = NO_SNAPSHOT
        self.committed = start
        self.recovery = Offset(0)
        self.durable = self.end = end
        self.check()

    def __repr__(self) -> str:
        return "Progress(" + ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__) + ")"

    def check(self) -> None:
        assert self.start <= self.committed <= self.end, self
        assert self.cleaned <= self.older <= self.committed or self.older == NO_SNAPSHOT, self
        assert self.recovery <= self.durable <= self.end, self

    # What every turn moves: one comparison each, which is all of the order that such a move can break.

    def append(self, end: Offset) -> None:
        assert end >= self.end, (end, self)
        self.end = end

    def sync(self, durable: Offset) -> None:
        """Everything below an offset is on stable storage. An earlier sync may have come further."""
        if durable > self.durable:
            assert durable <= self.end, (durable, self)
            self.durable = durable

    def commit(self, committed: Offset) -> bool:
        """No failover takes back what is below an offset. Whether that is news: it never goes back by this."""
        if committed <= self.committed:
            return False
        assert committed <= self.end, (committed, self)
        self.committed = committed
        return True

    # What is moved now and then.

    def resume(self, *, older: Offset, committed: Offset, recovery: Offset) -> None:
        """Take over what the checkpoint says when a log is opened."""
        # What the segments show counts: cleaning may have come further, and an operator may have given up the end.
        if older != NO_SNAPSHOT:
            self.older = max(older, self.cleaned) if older <= self.end else self.cleaned
        self.committed = min(max(committed, self.start, self.older), self.end)
        self.recovery = min(recovery, self.end)
        self.check()

    def raise_start(self, start: Offset) -> None:
        self.start = max(self.start, start)
        self.check()

    def clean(self, cleaned: Offset) -> None:
        self.cleaned = max(self.cleaned, cleaned)
        self.check()

    def publish(self, older: Offset) -> None:
        """Every fold has two durable snapshots at or above an offset, and none needs an older one."""
        self.older = max(older, self.cleaned)
        self.check()

    def forget_snapshots(self) -> None:
        """A fold takes part that has none. Nothing more is cleaned until it has two."""
        self.older = self.cleaned
        self.check()

    def checkpoint(self, recovery: Offset) -> None:
        self.recovery = max(self.recovery, recovery)
        self.check()

    def recovered(self) -> None:
        """The log was read to its end and synced."""
        self.durable = self.end

    def truncate(self, end: Offset) -> None:
        """The log ends at an offset below its end.

        Leaders and followers never cut below the committed offset. An operator may, and then all that was above goes,
        the snapshots too: what is left of them covers what was cleaned, and nothing more is until two are published.
        """
        assert end <= self.end, (end, self)
        self.end = end
        self.durable = min(self.durable, end)
        self.recovery = min(self.recovery, end)
        self.committed = min(self.committed, end)
        self.start = min(self.start, end)
        self.cleaned = min(self.cleaned, end)
        if self.older > end:
            self.older = self.cleaned
        self.check()
