"""Tags and permissions: kept for their owners, obeyed by nobody.

Permissions are statements of the queue's policy, as in SQS: AddPermission puts one in under its label, and reading the
attribute Policy shows them.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.broker.queue.port import Queues
from headrace.gateways.sqs.place import Places, name_of_url
from headrace.gateways.sqs.view import ATTRIBUTES, NOTES, TAGS, stored_attributes, stored_tags
from headrace.model.queue import Queue
from headrace.wire.sqs.answer import NOTHING, Answer, QueueTags
from headrace.wire.sqs.check import TAGS_MAX
from headrace.wire.sqs.error import INVALID_VALUE, OVER_LIMIT, SqsError, invalid_value, missing
from headrace.wire.sqs.request import AddPermission, ListQueueTags, RemovePermission, TagQueue, UntagQueue

_KEY_LENGTH_MAX, _VALUE_LENGTH_MAX = 128, 256
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_ACTION = re.compile(r"\*|[A-Za-z]{1,80}", re.ASCII)
_ACTIONS_MAX = 7
_STATEMENTS_MAX = 20


def check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise SqsError(INVALID_VALUE, f"Too many tags added for queue: {len(tags)}, above {TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY_LENGTH_MAX or len(value) > _VALUE_LENGTH_MAX or key.lower().startswith("aws:"):
            raise SqsError(
                INVALID_VALUE,
                f"The tag {key[:_KEY_LENGTH_MAX]!r} is not valid: keys have 1 to {_KEY_LENGTH_MAX} characters and do "
                f"not begin with aws:, values have up to {_VALUE_LENGTH_MAX}.",
            )


class Labelling:
    """The operations on tags and permissions."""

    def __init__(self, queues: Queues, places: Places, *, changing: asyncio.Lock) -> None:
        self._queues = queues
        self._places = places
        self._changing = changing

    def list_queue_tags(self, request: ListQueueTags, host: str) -> Answer:
        return QueueTags(tags=stored_tags(self._queues.find(name_of_url(request.queue_url))) or None)

    async def tag_queue(self, request: TagQueue, host: str) -> Answer:
        if not request.tags:
            raise missing("Tags")
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            tags = {**stored_tags(queue), **request.tags}
            check_tags(tags)
            await self._store(queue, stored_attributes(queue), tags)
        return NOTHING

    async def untag_queue(self, request: UntagQueue, host: str) -> Answer:
        if not request.tag_keys:
            raise missing("TagKeys")
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            gone = set(request.tag_keys)
            tags = {key: value for key, value in stored_tags(queue).items() if key not in gone}
            await self._store(queue, stored_attributes(queue), tags)
        return NOTHING

    async def add_permission(self, request: AddPermission, host: str) -> Answer:
        _check_permission(request)
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            policy = _policy(queue)
            if any(statement.get("Sid") == request.label for statement in policy["Statement"]):
                raise invalid_value(request.label, "Label", "Already exists.")
            if len(policy["Statement"]) >= _STATEMENTS_MAX:
                raise SqsError(OVER_LIMIT, f"{_STATEMENTS_MAX} statements were found, at most that many are allowed.")
            policy["Statement"].append(
                {
                    "Sid": request.label,
                    "Effect": "Allow",
                    "Principal": {"AWS": [f"arn:aws:iam::{account}:root" for account in request.account_ids]},
                    "Action": [f"SQS:{action}" for action in request.actions],
                    "Resource": self._places.arn(queue.name),
                }
            )
            await self._store_policy(queue, policy)
        return NOTHING

    async def remove_permission(self, request: RemovePermission, host: str) -> Answer:
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            policy = _policy(queue)
            left = [statement for statement in policy["Statement"] if statement.get("Sid") != request.label]
            if len(left) == len(policy["Statement"]):
                raise invalid_value(request.label[:80], "Label", "can't find label on existing policy.")
            await self._store_policy(queue, {**policy, "Statement": left})
        return NOTHING

    async def _store_policy(self, queue: Queue, policy: Mapping[str, Any]) -> None:
        attributes = {name: value for name, value in stored_attributes(queue).items() if name != "Policy"}
        if policy["Statement"]:
            attributes["Policy"] = msgspec.json.encode(policy).decode()
        await self._store(queue, attributes, stored_tags(queue))

    async def _store(self, queue: Queue, attributes: Mapping[str, str], tags: Mapping[str, str]) -> None:
        notes = {ATTRIBUTES: dict(attributes), TAGS: dict(tags)}
        await self._queues.update(queue.name, notes={NOTES: notes})


def _check_permission(request: AddPermission) -> None:
    if _LABEL.fullmatch(request.label) is None:
        raise invalid_value(request.label[:80], "Label", "It has 1 to 80 letters, digits, hyphens and underscores.")
    if not request.account_ids:
        raise missing("AWSAccountIds")
    if not request.actions:
        raise missing("Actions")
    for account in request.account_ids:
        if _ACCOUNT.fullmatch(account) is None:
            raise invalid_value(account[:80], "PrincipalId", "Unable to verify.")
    if len(request.actions) > _ACTIONS_MAX:
        raise SqsError(OVER_LIMIT, f"{len(request.actions)} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    for action in request.actions:
        if _ACTION.fullmatch(action) is None:
            raise invalid_value(action[:80], "ActionName", "It is the name of an operation, or *.")


def _policy(queue: Queue) -> dict[str, Any]:
    text = stored_attributes(queue).get("Policy", "")
    policy: dict[str, Any] = msgspec.json.decode(text) if text else {"Version": "2012-10-17", "Id": queue.name}
    statements = policy.get("Statement", [])
    listed = statements if isinstance(statements, list) else [statements]
    return {**policy, "Statement": [one for one in listed if isinstance(one, dict)]}
