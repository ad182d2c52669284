"""Many members of one group in one process, and how long the group takes to agree when it changes.

Run as `python -m benchmarks.group_storm ADDRESS TOPIC --members 100 --protocol classic`; the topic has a partition for
each member. It prints, as JSON, the seconds until every partition has exactly one owner and every member has some: when
all of them begin, when one leaves, and when one comes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import Consumer

from benchmarks.group_load import settings
from benchmarks.process import clean_environment

DEADLINE_S = 120.0
# librdkafka's default of 3 s would be most of what is measured: a member hears of a rebalance in its next heartbeat.
HEARTBEAT_MS = 500


class MeasuredRebalances(msgspec.Struct, frozen=True, kw_only=True):
    begin_s: float
    leave_s: float
    join_s: float


def measure(address: str, topic: str, *, members: int, protocol: str) -> MeasuredRebalances:
    """Start the members and wait for what they say."""
    command = [sys.executable, "-m", "benchmarks.group_storm", address, topic]
    command += ["--members", str(members), "--protocol", protocol]
    done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=4 * DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"the members failed: {done.stderr[-2000:].decode(errors='replace')}")
    return msgspec.json.decode(done.stdout, type=MeasuredRebalances)


class _Member:
    def __init__(self, address: str, topic: str, protocol: str) -> None:
        more = {"heartbeat.interval.ms": HEARTBEAT_MS} if protocol == "classic" else {}
        self.owned: set[int] = set()
        self.consumer = Consumer(settings(address, f"storm-{protocol}", protocol, **more))
        self.consumer.subscribe([topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)

    def _given(self, consumer: Consumer, places: Sequence[Any]) -> None:
        self.owned |= {place.partition for place in places}

    def _taken(self, consumer: Consumer, places: Sequence[Any]) -> None:
        self.owned -= {place.partition for place in places}


class _Storm:
    def __init__(self, address: str, topic: str, protocol: str, partitions: int) -> None:
        self._address = address
        self._topic = topic
        self._protocol = protocol
        self._partitions = partitions
        self._members: list[_Member] = []

    def _make(self) -> _Member:
        return _Member(self._address, self._topic, self._protocol)

    def begin(self, count: int) -> float:
        begun_s = time.monotonic()
        self._members = [self._make() for _ in range(count)]
        return self._settle(begun_s)

    def leave(self) -> float:
        begun_s = time.monotonic()
        self._members.pop(0).consumer.close()
        return self._settle(begun_s)

    def join(self) -> float:
        begun_s = time.monotonic()
        self._members.append(self._make())
        return self._settle(begun_s)

    def _settle(self, begun_s: float) -> float:
        while not self._is_settled():
            if time.monotonic() - begun_s > DEADLINE_S:
                raise RuntimeError(f"the group did not agree within {DEADLINE_S:.0f} s")
            for member in self._members:
                member.consumer.poll(0)
            time.sleep(0.002)
        return time.monotonic() - begun_s

    def _is_settled(self) -> bool:
        shares = [member.owned for member in self._members]
        owned = sum(map(len, shares))
        return all(shares) and owned == self._partitions == len(set().union(*shares))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_storm")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--protocol", default="classic")
    given = parser.parse_args()
    storm = _Storm(given.address, given.topic, given.protocol, given.members)
    begin_s = storm.begin(given.members)
    leave_s = storm.leave()
    found = MeasuredRebalances(begin_s=begin_s, leave_s=leave_s, join_s=storm.join())
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.stdout.buffer.flush()
    # A hundred members that leave one after another would be a hundred rebalances that nobody measures.
    os._exit(0)


if __name__ == "__main__":
    main()
