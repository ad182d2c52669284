"""Topics and their configuration: create, list, describe, alter, delete."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.client.deadline import Deadline
from headrace.client.deletion import refused
from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.router import Router
from headrace.client.values import ClusterInfo, ConfigEntry, TopicInfo
from headrace.model.errors import (
    HeadraceError,
    InvalidPartitionsError,
    TimedOutError,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 19, 20, 32, 37, 44

RESOURCE_TOPIC = 2
_SOURCE_TOPIC = 1  # set on the topic itself; every other source is some default
_SET, _DELETE = 0, 1
# Version 6 names topics in structs, so that they may be named by id; before, it was a list of strings.
_DELETE_TOPICS_STATES = 6


class Admin:
    """Administration through the controller. Each call is retried until the client's deadline."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def cluster(self) -> ClusterInfo:
        deadline = self._router.deadline()
        await self._router.retrying((), lambda: self._router.refresh((), deadline), deadline)
        return self._router.cluster

    async def list_topics(self) -> list[TopicInfo]:
        deadline = self._router.deadline()
        topics = await self._router.retrying((), lambda: self._router.refresh(None, deadline), deadline)
        return sorted(topics, key=lambda topic: topic.name)

    async def describe_topic(self, name: str) -> TopicInfo:
        deadline = self._router.deadline()
        topics = await self._router.retrying((), lambda: self._router.refresh((name,), deadline), deadline)
        return topics[0]

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo | None:
        """Create a topic; -1 leaves a number to the broker. None where it was only validated."""
        deadline = self._router.deadline()
        configs = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items())
        topic = CreatableTopic(
            name=name, num_partitions=partition_count, replication_factor=replication_factor, configs=configs
        )
        maybe_done = False

        async def attempt() -> None:
            nonlocal maybe_done
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=deadline.left_ms, validate_only=validate_only)
            connection = await self._router.controller(deadline)
            try:
                response = await connection.call(
                    CREATE_TOPICS, request, CreateTopicsResponse, timeout_ms=deadline.left_ms
                )
            except TimedOutError:
                maybe_done = True
                raise
            for result in response.topics:
                if result.error_code != NO_ERROR:
                    error = wire_error(result.error_code, subject=name, message=result.error_message)
                    # After an attempt with an unclear end, the topic may well be ours.
                    if maybe_done and isinstance(error, TopicExistsError):
                        return
                    raise error

        await self._router.retrying((name,), attempt, deadline)
        return None if validate_only else await self.describe_topic(name)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and everything in them. Each of them is tried; what is refused is raised, and says the rest."""
        deadline = self._router.deadline()
        # A name that is given twice is one topic.
        wanted = list(dict.fromkeys(names))
        deleted: list[str] = []
        refusals: dict[str, HeadraceError] = {}
        unclear: set[str] = set()

        async def attempt() -> None:
            # A topic that was deleted must not be asked for again: the answer would blame it for being gone.
            left = [name for name in wanted if name not in deleted and name not in refusals]
            try:
                results = await self._delete(left, deadline)
            except TimedOutError:
                unclear.update(left)
                raise
            retriable = None
            for name, error in results.items():
                if error is None or (name in unclear and isinstance(error, UnknownTopicError)):
                    deleted.append(name)
                elif error.retriable and not isinstance(error, UnknownTopicError):
                    retriable = error
                    if isinstance(error, TimedOutError):
                        unclear.add(name)
                else:
                    # The controller knows which topics there are, so one that it does not know is not asked for twice.
                    refusals[name] = error
            if retriable is not None:
                raise retriable

        await self._router.retrying(wanted, attempt, deadline)
        self._router.forget(wanted)
        if refusals:
            raise refused(list(refusals.values()), deleted)

    async def _delete(self, names: Sequence[str], deadline: Deadline) -> dict[str, HeadraceError | None]:
        connection = await self._router.controller(deadline)
        if connection.version(DELETE_TOPICS) >= _DELETE_TOPICS_STATES:
            states = tuple(DeleteTopicState(name=name) for name in names)
            request = DeleteTopicsRequest(topics=states, timeout_ms=deadline.left_ms)
        else:
            request = DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=deadline.left_ms)
        response = await connection.call(DELETE_TOPICS, request, DeleteTopicsResponse, timeout_ms=deadline.left_ms)
        return {
            result.name or "": None
            if result.error_code == NO_ERROR
            else wire_error(result.error_code, subject=result.name or "", message=result.error_message)
            for result in response.responses
        }

    async def create_partitions(self, name: str, count: int) -> TopicInfo:
        """Raise a topic's number of partitions to a count."""
        deadline = self._router.deadline()
        maybe_done = False

        async def attempt() -> None:
            nonlocal maybe_done
            topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
            request = CreatePartitionsRequest(topics=(topic,), timeout_ms=deadline.left_ms)
            connection = await self._router.controller(deadline)
            try:
                response = await connection.call(
                    CREATE_PARTITIONS, request, CreatePartitionsResponse, timeout_ms=deadline.left_ms
                )
            except TimedOutError:
                maybe_done = True
                raise
            for result in response.results:
                if result.error_code != NO_ERROR:
                    error = wire_error(result.error_code, subject=name, message=result.error_message)
                    # After an attempt with an unclear end, the topic may well have them by our own doing.
                    if maybe_done and isinstance(error, InvalidPartitionsError):
                        found = (await self._router.refresh((name,), deadline))[0]
                        if len(found.partitions) == count:
                            return
                    raise error

        await self._router.retrying((name,), attempt, deadline)
        return await self.describe_topic(name)

    async def describe_config(self, name: str, keys: Sequence[str] | None = None) -> list[ConfigEntry]:
        """A topic's settings, or those with these names, each with whether it is a default."""
        deadline = self._router.deadline()

        async def attempt() -> list[ConfigEntry]:
            resource = DescribeConfigsResource(
                resource_type=RESOURCE_TOPIC,
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            request = DescribeConfigsRequest(resources=(resource,), include_documentation=True)
            connection = await self._router.any_connection()
            if connection.version(DESCRIBE_CONFIGS) < 3:
                request = DescribeConfigsRequest(resources=(resource,))
            response = await connection.call(
                DESCRIBE_CONFIGS, request, DescribeConfigsResponse, timeout_ms=deadline.left_ms
            )
            entries = []
            for result in response.results:
                if result.error_code != NO_ERROR:
                    raise wire_error(result.error_code, subject=name, message=result.error_message)
                entries += [
                    ConfigEntry(entry.name, entry.value, entry.config_source != _SOURCE_TOPIC, entry.documentation)
                    for entry in result.configs
                ]
            return sorted(entries)

        return await self._router.retrying((name,), attempt, deadline)

    async def alter_config(
        self, name: str, *, settings: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> None:
        """Set some of a topic's settings and return others to their defaults; the rest stay as they are."""
        deadline = self._router.deadline()
        changes = [
            AlterableConfig(name=key, config_operation=_SET, value=text) for key, text in (settings or {}).items()
        ]
        changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in removals]

        async def attempt() -> None:
            resource = AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=name, configs=tuple(changes))
            connection = await self._router.controller(deadline)
            response = await connection.call(
                INCREMENTAL_ALTER_CONFIGS,
                IncrementalAlterConfigsRequest(resources=(resource,)),
                IncrementalAlterConfigsResponse,
                timeout_ms=deadline.left_ms,
            )
            for result in response.responses:
                if result.error_code != NO_ERROR:
                    raise wire_error(result.error_code, subject=name, message=result.error_message)

        await self._router.retrying((name,), attempt, deadline)
