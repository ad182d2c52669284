"""(j, k): how fast a group reads, beside a consumer that has all partitions assigned; how soon a large one agrees.

The members of a group are processes of their own, which begin together once the group has agreed; what counts is the
time from the first to the last of them. On a machine with few cores they share them with the node, so that four members
read about what two do: the ratio says what being in a group costs, not how far it scales.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import generator
from benchmarks.generator import new_topic
from benchmarks.group_load import Assigned, MeasuredMember
from benchmarks.group_storm import MeasuredRebalances
from benchmarks.group_storm import measure as measure_rebalances
from benchmarks.process import Server, clean_environment, running_node
from benchmarks.report import Report, amount
from benchmarks.settings import Settings

NAME = "groups"
SIZE_BYTES = 1024
PARTITIONS = 4
MEMBERS = (1, 2, 4)
PROTOCOLS = ("classic", "consumer")
LEAVE_DEADLINE_S = 60.0


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A number of members: medians over the turns."""

    members: int
    messages_per_s: float
    ratio: float
    ratios: list[float]


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    protocol: str
    members: int
    measured: MeasuredRebalances | None  # None: it could not be measured
    failure: str = ""


def run(settings: Settings) -> Report:
    count = int(settings.either(1.0e9, 0.1e9)) // SIZE_BYTES
    turns = range(int(settings.either(5, 1)))
    found: dict[int, list[tuple[float, float]]] = {members: [] for members in MEMBERS}
    with running_node(settings.directory / "groups") as node:
        with new_topic(node, "shared", "memory", partitions=PARTITIONS):
            generator.produce(node.address, "shared", "--size", str(SIZE_BYTES), "--messages", str(count))
            for turn in turns:
                for members, taken in found.items():
                    alone = read(node, settings.directory, 1, None)
                    taken.append((read(node, settings.directory, members, f"bench-{members}-{turn}"), alone))
        rebalances = [_rebalance(node, protocol, int(settings.either(100, 20))) for protocol in PROTOCOLS]
    lines = [
        Line(
            members=members,
            messages_per_s=median(rate for rate, _ in taken),
            ratio=median(rate / alone for rate, alone in taken),
            ratios=[rate / alone for rate, alone in taken],
        )
        for members, taken in found.items()
    ]
    return report(lines, median(alone for taken in found.values() for _, alone in taken), rebalances)


def read(node: Server, directory: Path, members: int, group: str | None) -> float:
    """Messages a second of some members, or of one consumer without a group."""
    with ExitStack() as stack:
        started = [stack.enter_context(_member(node, directory, group)) for _ in range(members)]
        _agree(started)
        for member in started:
            member.say("go")
        measured = [member.result() for member in started]
        for member in started:
            member.say("end")
    seconds = (max(one.ended_ns for one in measured) - min(one.began_ns for one in measured)) / 1e9
    return sum(one.messages for one in measured) / seconds


class _Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.owned: list[int] = []

    def hear(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a consumer ended before it had read everything")
        return line

    def listen_until_given(self) -> None:
        self.owned = msgspec.json.decode(self.hear(), type=Assigned).partitions

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> MeasuredMember:
        return msgspec.json.decode(self.hear(), type=MeasuredMember)


@contextmanager
def _member(node: Server, directory: Path, group: str | None) -> Iterator[_Process]:
    command = [sys.executable, "-m", "benchmarks.group_load", node.address, "shared"]
    if group is not None:
        command += ["--group", group]
    with (directory / "members.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=clean_environment()
        )
    try:
        yield _Process(process)
        process.wait(LEAVE_DEADLINE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LEAVE_DEADLINE_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def _agree(members: list[_Process]) -> None:
    """Wait until each member has its share. One that had another before is told of each change."""
    share = PARTITIONS // len(members)
    for member in members:
        while len(member.owned) != share:
            member.listen_until_given()


def _rebalance(node: Server, protocol: str, members: int) -> Rebalance:
    name = f"storm-{protocol}"
    with new_topic(node, name, "memory", partitions=members):
        try:
            found = measure_rebalances(node.address, name, members=members, protocol=protocol)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return Rebalance(protocol=protocol, members=members, measured=None, failure=str(error)[-300:])
        return Rebalance(protocol=protocol, members=members, measured=found)


def report(lines: list[Line], alone_messages_per_s: float, rebalances: list[Rebalance]) -> Report:
    rows = [["one consumer, assigned", amount(alone_messages_per_s), "1.00", ""]]
    rows += [
        [
            f"group of {line.members}",
            amount(line.messages_per_s),
            f"{line.ratio:.2f}",
            f"{min(line.ratios):.2f} to {max(line.ratios):.2f}",
        ]
        for line in lines
    ]
    return Report(
        name=NAME,
        title=f"(j, k) Groups reading 1 KB messages of {PARTITIONS} partitions, beside one consumer without a group",
        columns=["who reads", "messages/s", "ratio", "of turns"],
        rows=rows,
        figures={
            "lines": msgspec.to_builtins(lines),
            "assigned_messages_per_s": alone_messages_per_s,
            "rebalances": msgspec.to_builtins(rebalances),
        },
        notes=[_said(rebalance) for rebalance in rebalances],
    )


def _said(rebalance: Rebalance) -> str:
    who = f"{rebalance.members} members, {rebalance.protocol} protocol"
    if rebalance.measured is None:
        return f"{who}: not measured; {rebalance.failure}"
    found = rebalance.measured
    return (
        f"{who}: they agree {found.begin_s:.1f} s after all began, {found.leave_s:.1f} s after one left, "
        f"{found.join_s:.1f} s after one came."
    )
