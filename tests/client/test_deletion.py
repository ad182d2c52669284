"""Deleting several things at once: who is blamed, and what is asked again."""

import asyncio
from typing import Any

import pytest
from tests.client.scripted import Fault, Script, ScriptedBroker, scripted

from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.model.errors import UnknownGroupError, UnknownTopicError
from headrace.wire.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.wire.kafka.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from headrace.wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse

FIND_COORDINATOR, DELETE_TOPICS, DELETE_GROUPS = 10, 20, 42
TIMED_OUT, UNKNOWN_TOPIC, NOT_CONTROLLER, UNKNOWN_GROUP = 7, 3, 41, 69
# Long enough for any machine: no test here waits for it.
PATIENT = ClientConfig(deadline_ms=60_000, retry_pause_ms=1, retry_pause_ms_max=5)


class Topics:
    """Topics that are there until they are deleted. What is to go wrong first is said by name."""

    def __init__(self, *names: str, trouble: dict[str, int] | None = None, first: Fault | None = None) -> None:
        self.names = set(names)
        self.trouble = trouble or {}
        self.first = first
        self.asked: list[list[str]] = []

    def answer(self, request: Any) -> Any:
        asked = [state.name for state in request.topics]
        self.asked.append(asked)
        response = DeleteTopicsResponse(
            responses=tuple(DeletableTopicResult(name=name, error_code=self._delete(name)) for name in asked)
        )
        fault, self.first = self.first, None
        return fault or response

    def _delete(self, name: str) -> int:
        if name in self.trouble:
            return self.trouble.pop(name)
        if name not in self.names:
            return UNKNOWN_TOPIC
        self.names.discard(name)
        return 0


def delete_topics(topics: Topics, *names: str) -> None:
    async def main() -> None:
        async with (
            scripted({DELETE_TOPICS: topics.answer}) as broker,
            StreamClient([broker.address], config=PATIENT) as client,
        ):
            await client.admin.delete_topics(names)

    asyncio.run(main())


def test_a_topic_that_is_not_there_is_blamed_and_what_is_gone_is_said() -> None:
    topics = Topics("a", "b")
    with pytest.raises(UnknownTopicError) as raised:
        delete_topics(topics, "a", "typo", "b", "other")
    assert str(raised.value).startswith("typo: ")
    assert "; other: " in str(raised.value)
    assert str(raised.value).endswith("(deleted: a, b)")
    assert topics.asked == [["a", "typo", "b", "other"]]


def test_a_topic_that_is_named_twice_is_deleted_once() -> None:
    topics = Topics("a")
    delete_topics(topics, "a", "a")
    assert topics.asked == [["a"]]


def test_only_what_is_not_deleted_yet_is_asked_for_again() -> None:
    topics = Topics("a", "b", trouble={"b": NOT_CONTROLLER})
    delete_topics(topics, "a", "b")
    assert topics.asked == [["a", "b"], ["b"]]


def test_after_a_lost_answer_topics_that_are_gone_are_deleted() -> None:
    topics = Topics("a", "b", first=Fault.CLOSE)
    delete_topics(topics, "a", "b")
    assert topics.asked == [["a", "b"], ["a", "b"]]


def test_a_topic_of_which_the_broker_gave_up_waiting_may_be_gone_by_then() -> None:
    topics = Topics("a", trouble={"b": TIMED_OUT})
    delete_topics(topics, "a", "b")
    assert topics.asked == [["a", "b"], ["b"]]


def delete_groups(script: Script, *names: str) -> list[str]:
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.extend(request.groups_names)
        return script(request)

    async def main() -> None:
        async with scripted({DELETE_GROUPS: answer}) as broker:
            broker.scripts[FIND_COORDINATOR] = lambda request: _coordinator(broker, request)
            async with StreamClient([broker.address], config=PATIENT) as client:
                await client.groups.delete(names)

    asyncio.run(main())
    return asked


def _coordinator(broker: ScriptedBroker, request: Any) -> FindCoordinatorResponse:
    key = request.coordinator_keys[0]
    host, port = broker.address
    return FindCoordinatorResponse(coordinators=(Coordinator(key=key, node_id=1, host=host, port=port),))


def _group_deleted(request: Any, code: int = 0) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=(DeletableGroupResult(group_id=request.groups_names[0], error_code=code),))


def test_a_group_that_is_not_there_is_blamed_and_what_is_gone_is_said() -> None:
    with pytest.raises(UnknownGroupError) as raised:
        delete_groups(
            lambda request: _group_deleted(request, UNKNOWN_GROUP * (request.groups_names[0] == "typo")), "a", "typo"
        )
    assert str(raised.value).startswith("group typo: ")
    assert str(raised.value).endswith("(deleted: a)")


def test_a_group_that_is_named_twice_is_deleted_once() -> None:
    assert delete_groups(_group_deleted, "a", "a") == ["a"]


def test_after_a_lost_answer_a_group_that_is_gone_is_deleted() -> None:
    codes = iter([None, UNKNOWN_GROUP])

    def script(request: Any) -> Any:
        code = next(codes)
        return Fault.CLOSE if code is None else _group_deleted(request, code)

    assert delete_groups(script, "a") == ["a", "a"]
