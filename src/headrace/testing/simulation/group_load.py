"""Members of a consumer group (KIP-848) that read a topic and commit how far they have come."""

from collections.abc import Mapping
from uuid import UUID

from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.fetcher import LATEST, Fetcher
from headrace.client.group import OFFSET_COMMIT, Groups
from headrace.client.raw_fetch import Position, RawFetcher
from headrace.client.values import TopicPartition
from headrace.model.errors import HeadraceError
from headrace.testing.history import Topic
from headrace.testing.simulation.client import LoadClient, World
from headrace.testing.simulation.stream_load import PARTITIONS
from headrace.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from headrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

GROUP = "readers"
_HEARTBEAT = 68
_LEAVING = -1
_REBALANCE_MS = 30_000
_FETCH_BYTES = 64 * 1024


class GroupMember(LoadClient):
    """Joins, reads what it is given, commits, and joins anew when it is told that it is no member any more."""

    def __init__(self, name: str, world: World, number: int, topic: Topic) -> None:
        super().__init__(name, world, number)
        self.is_empty = False  # the group has committed everything
        self._topic = topic
        self._router = self.router()
        self._raw = RawFetcher(self._router)
        self._groups = Groups(self._router)
        self._topic_id: UUID | None = None
        self._member_id = ""
        self._epoch = 0
        self._interval_ms = 1_000
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        while self.is_working:
            try:
                await self._heartbeat()
                await self._read()
                if not self.is_sending:
                    self.is_empty = await self._has_all()
            except HeadraceError as error:
                self.told("failed", error.code)
                self._epoch, self._positions = 0, {}
            await self.clock.sleep(min(self._interval_ms, 1_000) if not self.is_sending else self._interval_ms)
        await self._leave()
        await self._router.close()

    async def _heartbeat(self) -> None:
        joins = self._epoch == 0
        response = await self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self._member_id or str(self.rand.uuid()),
                member_epoch=self._epoch,
                rebalance_timeout_ms=_REBALANCE_MS,
                subscribed_topic_names=(self._topic.name,) if joins else None,
                topic_partitions=await self._owned(),
            )
        )
        self._member_id, self._epoch = response.member_id or self._member_id, response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            assigned = {number for one in response.assignment.topic_partitions for number in one.partitions}
            await self._take_over(assigned)

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        deadline = self._router.deadline()
        connection = await self._router.coordinator(GROUP, deadline)
        response = await connection.call(
            _HEARTBEAT, request, ConsumerGroupHeartbeatResponse, timeout_ms=deadline.left_ms
        )
        if response.error_code != NO_ERROR:
            raise wire_error(response.error_code, subject=f"group {GROUP}", message=response.error_message)
        return response

    async def _owned(self) -> tuple[RequestTopicPartitions, ...]:
        if self._topic_id is None:
            topic = await self._router.topic(self._topic.name, self._router.deadline())
            self._topic_id = topic.id
        numbers = tuple(sorted(self._positions))
        return (RequestTopicPartitions(self._topic_id, numbers),) if numbers else ()

    async def _take_over(self, assigned: set[int]) -> None:
        self._positions = {number: offset for number, offset in self._positions.items() if number in assigned}
        if new := sorted(assigned - self._positions.keys()):
            committed = await self._committed()
            self._positions |= {number: committed.get(number, 0) for number in new}
        self.told("owns", sorted(self._positions.items()))

    async def _committed(self) -> Mapping[int, int]:
        asked = self.history.now()
        found = {at.partition: offset for at, offset in (await self._groups.offsets(GROUP)).items()}
        for number, offset in found.items():
            self.history.found_offset(GROUP, self._topic.name, number, offset, asked=asked)
        return found

    async def _read(self) -> None:
        if not self._positions:
            return
        places = {
            TopicPartition(self._topic.name, number): Position(offset, _FETCH_BYTES)
            for number, offset in sorted(self._positions.items())
        }
        answers = await self._raw.fetch(places, committed=True, wait_ms=100, bytes_max=_FETCH_BYTES)
        come = {
            one.at.partition: one.next_offset
            for one in answers
            if one.next_offset > self._positions.get(one.at.partition, one.next_offset)
        }
        if come:
            await self._commit(come)
            self._positions |= come

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        calls = {
            number: self.history.commit_offset(GROUP, self._topic.name, number, offset)
            for number, offset in sorted(offsets.items())
        }
        topic = OffsetCommitRequestTopic(
            name=self._topic.name,
            topic_id=self._topic_id or UUID(int=0),
            partitions=tuple(
                OffsetCommitRequestPartition(number, offset) for number, offset in sorted(offsets.items())
            ),
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=(topic,),
        )
        deadline = self._router.deadline()
        connection = await self._router.coordinator(GROUP, deadline)
        response = await connection.call(OFFSET_COMMIT, request, OffsetCommitResponse, timeout_ms=deadline.left_ms)
        codes = {one.partition_index: one.error_code for found in response.topics for one in found.partitions}
        for number, call in calls.items():
            if codes[number] == NO_ERROR:
                self.history.answer(call, "yes")
                self.told("committed", number, call.offset)
        for number, code in codes.items():
            if code != NO_ERROR:
                raise wire_error(code, subject=f"group {GROUP} in {self._topic.name}-{number}")

    async def _has_all(self) -> bool:
        committed = await self._committed()
        ats = [TopicPartition(self._topic.name, number) for number in range(PARTITIONS)]
        ends = await Fetcher(self._router).list_offsets(dict.fromkeys(ats, LATEST))
        return all(committed.get(at.partition, 0) >= located.offset for at, located in ends.items())

    async def _leave(self) -> None:
        try:
            await self._ask(
                ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=_LEAVING)
            )
        except HeadraceError as error:
            self.told("could not leave", error.code)
