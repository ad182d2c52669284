"""AWS's API reference for SQS, what it says of queues, against a node in both protocols."""

import json
import time

import pytest
from botocore.exceptions import ClientError
from tests.compat.sqs_world import World, attributes_of, bodies, create, receive, status_of
from tests.support.wait import wait_until

COMMON = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "false",
    "VisibilityTimeout": "30",
}
FIFO = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}


@pytest.mark.parametrize(("suffix", "more"), [("", {}), (".fifo", FIFO)])
def test_a_queue_has_these_attributes_and_defaults(world: World, name: str, suffix: str, more: dict[str, str]) -> None:
    found = attributes_of(world, create(world, name + suffix))
    created, modified = int(found.pop("CreatedTimestamp")), int(found.pop("LastModifiedTimestamp"))
    assert abs(created - time.time()) < 60
    assert created <= modified
    assert found.pop("QueueArn") == f"arn:aws:sqs:us-east-1:000000000000:{name}{suffix}"
    assert found == COMMON | more


def test_attributes_of_encryption_exclude_each_other(world: World, name: str) -> None:
    url = create(world, name)
    kms = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")

    def change(**attributes: str) -> dict[str, str]:
        world.call("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
        return attributes_of(world, url, *kms)

    key = {"KmsMasterKeyId": "testKeyId", "SqsManagedSseEnabled": "false"}
    assert change(KmsMasterKeyId="testKeyId") == {**key, "KmsDataKeyReusePeriodSeconds": "300"}
    assert change(KmsDataKeyReusePeriodSeconds="6000") == {**key, "KmsDataKeyReusePeriodSeconds": "6000"}
    assert change(KmsMasterKeyId="", KmsDataKeyReusePeriodSeconds="300") == {"SqsManagedSseEnabled": "false"}
    assert change(SqsManagedSseEnabled="true") == {"SqsManagedSseEnabled": "true"}


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_a_fifo_queue_is_named_in_any_case(world: World, name: str, value: str) -> None:
    url = create(world, f"{name}-{value}.fifo", FifoQueue=value, ContentBasedDeduplication=value)
    found = attributes_of(world, url, "FifoQueue", "ContentBasedDeduplication")
    assert found == {"FifoQueue": "true", "ContentBasedDeduplication": "true"}


def test_create_queue_is_idempotent_where_what_it_names_is_the_same(world: World, name: str) -> None:
    url = create(world, name, DelaySeconds="1", ReceiveMessageWaitTimeSeconds="1")
    assert create(world, name) == create(world, name, DelaySeconds="1") == url
    world.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "2"})
    for delay in ("1", "3"):
        with pytest.raises(ClientError) as refusal:
            create(world, name, DelaySeconds=delay, ReceiveMessageWaitTimeSeconds="1")
        error = refusal.value.response["Error"]
        assert error["Code"] == "QueueAlreadyExists"
        words = "A queue already exists with the same name and a different value for attribute DelaySeconds"
        assert error["Message"] == words
    assert create(world, name, DelaySeconds="2", ReceiveMessageWaitTimeSeconds="1") == url


def test_a_deleted_name_and_a_purge_wait_for_a_minute(world: World, name: str) -> None:
    url = create(world, name)
    world.call("PurgeQueue", QueueUrl=url)
    with pytest.raises(ClientError) as purge:
        world.call("PurgeQueue", QueueUrl=url)
    world.call("DeleteQueue", QueueUrl=url)
    with pytest.raises(ClientError) as creation:
        create(world, name)
    said = [
        (one.value.response["Error"]["Code"], one.value.response["Error"]["Message"], status_of(one.value))
        for one in (purge, creation)
    ]
    wait = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    assert said == [
        (
            "AWS.SimpleQueueService.PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
            403,
        ),
        ("AWS.SimpleQueueService.QueueDeletedRecently", wait, 400),
    ]


def test_the_status_of_an_error_is_that_of_aws(world: World) -> None:
    for operation, parameters, status in (
        ("GetQueueUrl", {"QueueName": "absent"}, 400),
        ("StartMessageMoveTask", {"SourceArn": "<absent arn>"}, 404),
        (
            "AddPermission",
            {"QueueUrl": "<queue>", "Label": "x", "AWSAccountIds": ["1" * 12], "Actions": ["*"] * 8},
            403,
        ),
        ("ReceiveMessage", {"QueueUrl": "<queue>", "MaxNumberOfMessages": 0}, 400),
    ):
        with pytest.raises(ClientError) as refusal:
            world.call(operation, **parameters)
        assert status_of(refusal.value) == status, operation


def test_tags_are_overwritten_told_apart_by_case_and_taken_off(world: World, name: str) -> None:
    url = world.call("CreateQueue", QueueName=name, tags={"tag1": "value1", "tag2": "value2"})["QueueUrl"]
    world.call("TagQueue", QueueUrl=url, Tags={"tag1": "VALUE1", "TAG1": "", "tag3": "x"})
    tags = {"tag1": "VALUE1", "TAG1": "", "tag2": "value2", "tag3": "x"}
    assert world.call("ListQueueTags", QueueUrl=url) == {"Tags": tags}
    world.call("UntagQueue", QueueUrl=url, TagKeys=["tag1", "TAG1", "tag3", "absent"])
    assert world.call("ListQueueTags", QueueUrl=url) == {"Tags": {"tag2": "value2"}}


def test_permissions_make_the_policy_that_sqs_writes(world: World, name: str) -> None:
    url = create(world, name)
    arn, account = f"arn:aws:sqs:us-east-1:000000000000:{name}", "arn:aws:iam::{}:root"
    accounts = ["111111111111", "222222222222"]
    world.call("AddPermission", QueueUrl=url, Label="two", AWSAccountIds=accounts, Actions=["ReceiveMessage"])
    statement = {"Effect": "Allow", "Action": "SQS:ReceiveMessage", "Resource": arn}
    assert json.loads(attributes_of(world, url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [{**statement, "Sid": "two", "Principal": {"AWS": [account.format(one) for one in accounts]}}],
    }
    with pytest.raises(ClientError, match=r"Value no for parameter Label is invalid. Reason: can't find label on"):
        world.call("RemovePermission", QueueUrl=url, Label="no")
    with pytest.raises(ClientError, match=r"Value two for parameter Label is invalid. Reason: Already exists."):
        world.call("AddPermission", QueueUrl=url, Label="two", AWSAccountIds=accounts, Actions=["SendMessage"])
    world.call("RemovePermission", QueueUrl=url, Label="two")
    assert attributes_of(world, url, "Policy") == {}


@pytest.mark.parametrize("operation", ["ListQueues", "ListDeadLetterSourceQueues"])
def test_lists_come_in_pages_where_a_size_is_asked_for(world: World, name: str, operation: str) -> None:
    prefix = f"{name[:50]}-{operation}"
    dead = create(world, f"dead-{prefix}"[:80])
    policy = json.dumps(
        {"deadLetterTargetArn": attributes_of(world, dead, "QueueArn")["QueueArn"], "maxReceiveCount": 1}
    )
    urls = [create(world, f"{prefix}-{number}", RedrivePolicy=policy) for number in range(5)]
    of = {"QueueNamePrefix": prefix} if operation == "ListQueues" else {"QueueUrl": dead}
    member = "QueueUrls" if operation == "ListQueues" else "queueUrls"
    assert world.call(operation, **of) == {member: urls}
    first = world.call(operation, **of, MaxResults=2)
    assert first[member] == urls[:2]
    second = world.call(operation, **of, MaxResults=2, NextToken=first["NextToken"])
    assert second[member] == urls[2:4]
    assert world.call(operation, **of, MaxResults=2, NextToken=second["NextToken"]) == {member: urls[4:]}


def test_a_queue_is_known_by_its_name_alone_too(world: World, name: str) -> None:
    create(world, name)
    assert world.call("SendMessage", QueueUrl=name, MessageBody="x")["MessageId"]
    assert bodies(world, name) == ["x"]


def test_a_move_task_is_started_once_watched_and_cancelled(world: World, name: str) -> None:
    dead = create(world, f"{name}-dead")
    arn = attributes_of(world, dead, "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    queue = create(world, name, VisibilityTimeout="0", RedrivePolicy=policy)
    target = create(world, f"{name}-target")
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
    for _ in range(6):
        assert len(world.call("SendMessageBatch", QueueUrl=queue, Entries=entries)["Successful"]) == 10

    def are_dead() -> bool:
        receive(world, queue, MaxNumberOfMessages=10)
        return attributes_of(world, dead, "ApproximateNumberOfMessages")["ApproximateNumberOfMessages"] == "60"

    wait_until(are_dead, deadline_s=60, what=lambda: "sixty dead letters")
    to = attributes_of(world, target, "QueueArn")["QueueArn"]
    start = {"SourceArn": arn, "DestinationArn": to, "MaxNumberOfMessagesPerSecond": 1}
    handle = world.call("StartMessageMoveTask", **start)["TaskHandle"]
    with pytest.raises(ClientError) as second:
        world.call("StartMessageMoveTask", **start)
    error = second.value.response["Error"]
    words = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert (error["Code"], error["Message"]) == ("InvalidParameterValue", words)
    [running] = world.call("ListMessageMoveTasks", SourceArn=arn)["Results"]
    moved, started_ms = running.pop("ApproximateNumberOfMessagesMoved"), running.pop("StartedTimestamp")
    assert 0 <= moved <= 60
    assert abs(started_ms / 1000 - time.time()) < 60
    assert running == {
        **start,
        "TaskHandle": handle,
        "Status": "RUNNING",
        "ApproximateNumberOfMessagesToMove": 60,
    }
    assert world.call("CancelMessageMoveTask", TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] >= moved
    [over] = world.call("ListMessageMoveTasks", SourceArn=arn, MaxResults=10)["Results"]
    assert over["Status"] == "CANCELLED"
    assert not {"TaskHandle", "FailureReason"} & set(over)
    with pytest.raises(ClientError) as gone:
        world.call("CancelMessageMoveTask", TaskHandle=handle)
    error = gone.value.response["Error"]
    assert (error["Code"], error["Message"]) == ("ResourceNotFoundException", "Task does not exist.")
    assert status_of(gone.value) == 404
