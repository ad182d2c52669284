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
from headrace.gateways.sqs.pending import Caller
from headrace.gateways.sqs.place import Places, name_of_url
from headrace.gateways.sqs.policy import STATEMENTS_MAX
from headrace.gateways.sqs.view import ATTRIBUTES, NOTES, TAGS, stored_attributes, stored_tags
from headrace.model.queue import Queue
from headrace.wire.sqs.answer import NOTHING, Answer, QueueTags
from headrace.wire.sqs.check import TAG_KEY_LENGTH, TAG_KEY_MAX, TAG_VALUE_MAX, TAGS_MAX
from headrace.wire.sqs.error import INVALID_VALUE, OVER_LIMIT, SqsError, invalid_value, missing
from headrace.wire.sqs.request import (
    OPERATIONS,
    AddPermission,
    ListQueueTags,
    RemovePermission,
    TagQueue,
    UntagQueue,
)

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_ACTIONS_MAX = 7
# What a queue's owner may let others do; a permission for a message is one for its batch as well.
_GRANTED = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_VERSION = "2008-10-17"  # of the policies that SQS writes itself


def check_tags(name: str, tags: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse tags that were given to a queue, or all that it would have with them."""
    if len(tags) > TAGS_MAX:
        raise SqsError(INVALID_VALUE, f"Too many tags added for queue {name}.")
    for key, value in given.items():
        if not 1 <= len(key) <= TAG_KEY_MAX:
            raise SqsError(INVALID_VALUE, TAG_KEY_LENGTH)
        if len(value) > TAG_VALUE_MAX:
            raise SqsError(INVALID_VALUE, f"Tag values must be between 0 and {TAG_VALUE_MAX} characters in length.")
        if key.lower().startswith("aws:"):
            raise SqsError(INVALID_VALUE, "Tag keys cannot start with the reserved prefix aws:.")


class Labelling:
    """The operations on tags and permissions."""

    def __init__(self, queues: Queues, places: Places, *, changing: asyncio.Lock) -> None:
        self._queues = queues
        self._places = places
        self._changing = changing

    def list_queue_tags(self, request: ListQueueTags, caller: Caller) -> Answer:
        return QueueTags(tags=stored_tags(self._queues.find(name_of_url(request.queue_url))) or None)

    async def tag_queue(self, request: TagQueue, caller: Caller) -> Answer:
        if not request.tags:
            raise missing("Tags")
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            tags = {**stored_tags(queue), **request.tags}
            check_tags(queue.name, tags, request.tags)
            await self._store(queue, stored_attributes(queue), tags)
        return NOTHING

    async def untag_queue(self, request: UntagQueue, caller: Caller) -> Answer:
        if not request.tag_keys:
            raise SqsError(INVALID_VALUE, TAG_KEY_LENGTH)
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            gone = set(request.tag_keys)
            tags = {key: value for key, value in stored_tags(queue).items() if key not in gone}
            await self._store(queue, stored_attributes(queue), tags)
        return NOTHING

    async def add_permission(self, request: AddPermission, caller: Caller) -> Answer:
        _check_permission(request)
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            policy = self._policy(queue)
            if any(statement.get("Sid") == request.label for statement in policy["Statement"]):
                raise invalid_value(request.label, "Label", "Already exists.")
            if len(policy["Statement"]) >= STATEMENTS_MAX:
                found = len(policy["Statement"]) + 1
                raise SqsError(OVER_LIMIT, f"{found} Statements were found, maximum allowed is {STATEMENTS_MAX}.")
            policy["Statement"].append(
                {
                    "Sid": request.label,
                    "Effect": "Allow",
                    "Principal": {"AWS": _one([f"arn:aws:iam::{account}:root" for account in request.account_ids])},
                    "Action": _one([f"SQS:{action}" for action in request.actions]),
                    "Resource": self._places.arn(queue.name),
                }
            )
            await self._store_policy(queue, policy)
        return NOTHING

    async def remove_permission(self, request: RemovePermission, caller: Caller) -> Answer:
        if not request.label:
            raise missing("Label")
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            policy = self._policy(queue)
            left = [statement for statement in policy["Statement"] if statement.get("Sid") != request.label]
            if len(left) == len(policy["Statement"]):
                where = " on existing policy" if policy["Statement"] else ""
                raise invalid_value(request.label[:80], "Label", f"can't find label{where}.")
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

    def _policy(self, queue: Queue) -> dict[str, Any]:
        text = stored_attributes(queue).get("Policy", "")
        default = {"Version": _VERSION, "Id": f"{self._places.arn(queue.name)}/SQSDefaultPolicy"}
        policy: dict[str, Any] = msgspec.json.decode(text) if text else default
        statements = policy.get("Statement", [])
        listed = statements if isinstance(statements, list) else [statements]
        return {**policy, "Statement": [one for one in listed if isinstance(one, dict)]}


def _one(values: list[str]) -> str | list[str]:
    """As SQS writes policies: one value stands by itself."""
    return values[0] if len(values) == 1 else values


def _check_permission(request: AddPermission) -> None:
    if not request.label:
        raise missing("Label")
    if _LABEL.fullmatch(request.label) is None:
        reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        raise invalid_value(request.label[:80], "Label", reason)
    if not request.actions:
        raise missing("Actions")
    if not request.account_ids or any(_ACCOUNT.fullmatch(account) is None for account in request.account_ids):
        raise invalid_value(f"[{', '.join(request.account_ids)[:200]}]", "PrincipalId", "Unable to verify.")
    if len(request.actions) > _ACTIONS_MAX:
        raise SqsError(OVER_LIMIT, f"{len(request.actions)} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    for action in request.actions:
        if action in _GRANTED:
            continue
        is_known = action in OPERATIONS and not action.endswith("Batch")
        reason = (
            "Only the queue owner is allowed to invoke this action."
            if is_known
            else "Please refer to the appropriate WSDL for a list of valid actions."
        )
        raise invalid_value(f"SQS:{action[:80]}", "ActionName", reason)
