"""Operations on whole queues: their attributes, names, tags, permissions, dead letters."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from tests.gateways.sqs.door import Door, Refused

from headrace.broker.queue.port import RedriveState
from headrace.model.errors import (
    HeadraceError,
    PartitionOfflineError,
    QueueExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from headrace.model.queue import Deduplication, Guarantee, QueueConfig

DAY_MS = 86_400_000


def refused(door: Door, operation: str, **parameters: Any) -> str:
    with pytest.raises(Refused) as refusal:
        door.call(operation, **parameters)
    return refusal.value.code


def attributes(door: Door, url: str, *names: str) -> dict[str, str]:
    found: dict[str, str] = door.call("GetQueueAttributes", QueueUrl=url, AttributeNames=list(names or ["All"]))[
        "Attributes"
    ]
    return found


def policy(name: str, count: int | str = 3) -> str:
    return json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{name}", "maxReceiveCount": count})


def config(door: Door, name: str) -> QueueConfig:
    return door.queues.find(name).config


def test_a_new_queue_has_the_defaults_of_sqs() -> None:
    door = Door()
    url = door.create("orders")
    assert url == "http://localhost:8080/000000000000/orders"
    seconds = str(door.clock.wall_ms() // 1000)
    assert attributes(door, url) == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "CreatedTimestamp": seconds,
        "DelaySeconds": "0",
        "LastModifiedTimestamp": seconds,
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": "arn:aws:sqs:us-east-1:000000000000:orders",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "false",
        "VisibilityTimeout": "30",
    }
    assert config(door, "orders") == QueueConfig(retention_ms=4 * DAY_MS, max_deliveries=None)


def test_attributes_become_the_queues_own_settings() -> None:
    door = Door()
    door.create("dead.fifo")
    door.create(
        "orders.fifo",
        ContentBasedDeduplication="True",
        DelaySeconds="5",
        MessageRetentionPeriod="60",
        RedrivePolicy=policy("dead.fifo", "7"),
        VisibilityTimeout="0",
    )
    assert config(door, "orders.fifo") == QueueConfig(
        guarantee=Guarantee.EXACTLY_ONCE,
        ordered=True,
        lease_ms=0,
        delay_ms=5_000,
        retention_ms=60_000,
        max_deliveries=7,
        dead_letter="dead.fifo",
        deduplication=Deduplication.CONTENT,
    )


def test_a_fifo_queue_has_one_partition_unless_it_wants_throughput() -> None:
    door = Door()
    door.create("plain.fifo")
    door.create("fast.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    door.create("standard")
    counts = {name: shelf.partition_count for name, shelf in door.queues.shelves.items()}
    assert counts == {"plain.fifo": 1, "fast.fifo": -1, "standard": -1}


def test_attributes_that_nobody_obeys_are_given_back() -> None:
    door = Door()
    kept = {
        "Policy": '{"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Principal": "*", "Action": "sqs:*"}}',
        "KmsMasterKeyId": "alias/aws/sqs",
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
        "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}',
    }
    url = door.create("orders", **kept)
    assert attributes(door, url, *kept) == kept
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": "", "Policy": ""})
    left = attributes(door, url)
    assert not {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "Policy"} & set(left)


def test_a_queue_has_one_kind_of_encryption_the_one_that_was_set_last() -> None:
    door = Door()
    url = door.create("orders", SqsManagedSseEnabled="true")
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": "alias/mine"})
    found = attributes(door, url)
    assert (found["KmsMasterKeyId"], found["SqsManagedSseEnabled"]) == ("alias/mine", "false")
    assert found["KmsDataKeyReusePeriodSeconds"] == "300"
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    found = attributes(door, url)
    assert found["SqsManagedSseEnabled"] == "true"
    assert not {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} & set(found)


def test_create_is_idempotent_with_an_attribute_that_is_not_shown() -> None:
    door = Door()
    reuse = {"KmsDataKeyReusePeriodSeconds": "600"}  # which concerns queues that have a key
    url = door.create("orders", **reuse)
    assert not set(reuse) & set(attributes(door, url))
    assert door.create("orders", **reuse) == url


def test_create_is_idempotent_only_with_the_same_attributes() -> None:
    door = Door()
    door.create("dead")
    given = {"VisibilityTimeout": "60", "RedrivePolicy": policy("dead"), "MaximumMessageSize": "2048"}
    url = door.create("orders", **given)
    assert door.create("orders", **given) == url
    assert door.create("orders") == url
    assert door.create("orders", RedrivePolicy=policy("dead", "3")) == url
    for name, value in (("VisibilityTimeout", "61"), ("RedrivePolicy", policy("dead", 4)), ("DelaySeconds", "1")):
        with pytest.raises(Refused, match=name) as refusal:
            door.create("orders", **{name: value})
        assert (refusal.value.type, refusal.value.code) == ("QueueNameExists", "QueueAlreadyExists")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ö", "x" * 81, "x" * 76 + ".fifo", ".fifo", "../etc", "a\n"])
def test_a_name_outside_the_grammar_is_refused(name: str) -> None:
    assert refused(Door(), "CreateQueue", QueueName=name) == "InvalidParameterValue"
    assert refused(Door(), "CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"}) == "InvalidParameterValue"


def test_the_suffix_and_the_attribute_of_fifo_go_together() -> None:
    door = Door()
    assert refused(door, "CreateQueue", QueueName="a.fifo") == "InvalidParameterValue"
    assert refused(door, "CreateQueue", QueueName="a", Attributes={"FifoQueue": "true"}) == "InvalidParameterValue"
    door.call("CreateQueue", QueueName="x" * 75 + ".fifo", Attributes={"FifoQueue": "true"})


def test_a_standard_queue_has_no_attribute_fifo_queue() -> None:
    door = Door()
    with pytest.raises(Refused, match=r"Unknown Attribute FifoQueue\.") as refusal:
        door.call("CreateQueue", QueueName="a", Attributes={"FifoQueue": "false"})
    assert refusal.value.code == "InvalidAttributeName"
    assert not door.queues.shelves
    code = refused(door, "CreateQueue", QueueName="a.fifo", Attributes={"FifoQueue": "false"})
    assert code == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("VisibilityTimeout", "soon", "InvalidAttributeValue"),
        ("VisibilityTimeout", "", "InvalidAttributeValue"),
        ("DelaySeconds", "901", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1048577", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "1209601", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "000000000060" + "9" * 20, "InvalidAttributeValue"),
        ("VisibilityTimeout", "0" * 5_000 + "5", "InvalidAttributeValue"),
        ("ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "maybe", "InvalidAttributeValue"),
        ("Policy", "{", "InvalidAttributeValue"),
        ("Policy", "[]", "InvalidAttributeValue"),
        ("Policy", '{"a":' * 10_000 + "1" + "}" * 10_000, "InvalidAttributeValue"),
        ("RedrivePolicy", "{}", "InvalidParameterValue"),
        ("RedrivePolicy", policy("dead", 0), "InvalidParameterValue"),
        ("RedrivePolicy", policy("dead", 1001), "InvalidParameterValue"),
        ("RedrivePolicy", policy("dead", "000000001" + "9" * 20), "InvalidParameterValue"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "dead", "maxReceiveCount": 1}', "InvalidParameterValue"),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue"}', "InvalidParameterValue"),
        ("RedriveAllowPolicy", '{"redrivePermission": "some"}', "InvalidAttributeValue"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("DeduplicationScope", "queue", "InvalidAttributeName"),
        ("QueueArn", "x", "InvalidAttributeName"),
        ("Nonsense", "x", "InvalidAttributeName"),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(name: str, value: str, code: str) -> None:
    door = Door()
    assert refused(door, "CreateQueue", QueueName="orders", Attributes={name: value}) == code
    url = door.create("orders")
    assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes={name: value}) == code


def test_throughput_by_group_needs_deduplication_by_group() -> None:
    door = Door()
    given = {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"}
    assert refused(door, "CreateQueue", QueueName="a.fifo", Attributes=given) == "InvalidParameterValue"
    url = door.create("a.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    back = {"DeduplicationScope": "queue"}
    assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes=back) == "InvalidParameterValue"


def test_deduplication_over_all_groups_is_refused_to_a_queue_of_several_partitions() -> None:
    door = Door()
    url = door.create("a.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    by_queue = {"FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue"}
    door.queues.shelf("a.fifo").partition_count = 4
    unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
    assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes=by_queue) == unsupported
    assert attributes(door, url)["DeduplicationScope"] == "messageGroup"
    door.queues.shelf("a.fifo").partition_count = 1
    door.call("SetQueueAttributes", QueueUrl=url, Attributes=by_queue)
    assert attributes(door, url)["DeduplicationScope"] == "queue"


def test_changed_attributes_are_obeyed_and_the_others_stay() -> None:
    door = Door()
    url = door.create("orders", VisibilityTimeout="60", MaximumMessageSize="2048")
    door.clock.advance(5_000)
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"MessageRetentionPeriod": "120"})
    found = attributes(door, url)
    assert (found["VisibilityTimeout"], found["MaximumMessageSize"]) == ("60", "2048")
    assert config(door, "orders").retention_ms == 120_000
    assert int(found["LastModifiedTimestamp"]) == int(found["CreatedTimestamp"]) + 5
    assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes={}) == "MissingParameter"
    for value in ("true", "false"):
        given = {"FifoQueue": value}
        assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes=given) == "InvalidAttributeName"
    fifo = door.create("orders.fifo")
    door.call("SetQueueAttributes", QueueUrl=fifo, Attributes={"FifoQueue": "true"})
    standard = {"FifoQueue": "false"}
    assert refused(door, "SetQueueAttributes", QueueUrl=fifo, Attributes=standard) == "InvalidAttributeValue"


def test_what_another_door_changes_at_the_same_moment_is_not_undone() -> None:
    door = Door()
    url = door.create("orders")
    door.queues.changed_meanwhile = msgspec.structs.replace(config(door, "orders"), messages_max=5)
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    assert (config(door, "orders").messages_max, config(door, "orders").lease_ms) == (5, 7_000)


def test_a_dead_letter_queue_exists_is_of_the_same_type_and_allows_it() -> None:
    door = Door()
    door.create("dead")
    door.create("dead.fifo")
    door.create("shut", RedriveAllowPolicy='{"redrivePermission": "denyAll"}')
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:000000000000:orders"]}
    door.create("picky", RedriveAllowPolicy=json.dumps(by_queue))
    url = door.create("orders")
    for target in ("absent", "dead.fifo", "shut"):
        given = {"RedrivePolicy": policy(target)}
        assert refused(door, "SetQueueAttributes", QueueUrl=url, Attributes=given) == "InvalidParameterValue"
    for target in ("dead", "picky", "orders"):  # its own one, too
        door.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy(target)})
        assert config(door, "orders").dead_letter == target
        sources = door.call("ListDeadLetterSourceQueues", QueueUrl=f"http://localhost/000000000000/{target}")
        assert sources == {"queueUrls": [url]}
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert config(door, "orders").max_deliveries is None
    assert "RedrivePolicy" not in attributes(door, url)


def test_only_the_attributes_that_are_asked_for_are_given() -> None:
    door = Door()
    url = door.create("orders")
    assert attributes(door, url, "VisibilityTimeout", "Policy") == {"VisibilityTimeout": "30"}
    assert door.call("GetQueueAttributes", QueueUrl=url) == {}
    assert refused(door, "GetQueueAttributes", QueueUrl=url, AttributeNames=["Nonsense"]) == "InvalidAttributeName"


def test_counts_are_told_apart() -> None:
    door = Door()
    url = door.create("orders")
    for delay_s in (0, 0, 0, 60):
        door.call("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay_s)
    door.receive_one(url)
    found = attributes(door, url)
    assert found["ApproximateNumberOfMessages"] == "2"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert found["ApproximateNumberOfMessagesDelayed"] == "1"


def test_queues_are_listed_by_prefix_and_in_pages() -> None:
    door = Door()
    for name in ("b2", "a", "b1", "b3"):
        door.create(name)
    every = [f"http://localhost:8080/000000000000/{name}" for name in ("a", "b1", "b2", "b3")]
    assert door.call("ListQueues") == {"QueueUrls": every}
    assert door.call("ListQueues", QueueNamePrefix="b")["QueueUrls"] == every[1:]
    assert door.call("ListQueues", QueueNamePrefix="none") == {}
    first = door.call("ListQueues", QueueNamePrefix="b", MaxResults=2)
    assert first["QueueUrls"] == every[1:3]
    second = door.call("ListQueues", QueueNamePrefix="b", MaxResults=2, NextToken=first["NextToken"])
    assert second == {"QueueUrls": every[3:]}
    assert refused(door, "ListQueues", MaxResults=0) == "InvalidParameterValue"
    assert refused(door, "ListQueues", MaxResults=5, NextToken="\u00ff") == "InvalidParameterValue"


def test_a_queues_address_is_found_by_its_name() -> None:
    door = Door()
    url = door.create("orders")
    assert door.call("GetQueueUrl", QueueName="orders") == {"QueueUrl": url}
    assert refused(door, "GetQueueUrl", QueueName="absent") == "AWS.SimpleQueueService.NonExistentQueue"


def test_a_purge_empties_a_queue_once_a_minute() -> None:
    door = Door()
    url = door.create("orders")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    assert door.call("PurgeQueue", QueueUrl=url) == {}
    assert door.call("ReceiveMessage", QueueUrl=url) == {}
    door.clock.advance(59_000)
    with pytest.raises(Refused) as refusal:
        door.call("PurgeQueue", QueueUrl=url)
    assert (refusal.value.code, refusal.value.status) == ("AWS.SimpleQueueService.PurgeQueueInProgress", 403)
    door.clock.advance(1_001)
    door.call("PurgeQueue", QueueUrl=url)


def test_a_purge_that_failed_may_be_tried_again_at_once() -> None:
    door = Door()
    url = door.create("orders")
    door.call("SendMessage", QueueUrl=url, MessageBody="x")
    door.queues.purge_error = PartitionOfflineError("orders-0 is offline")
    assert refused(door, "PurgeQueue", QueueUrl=url) == "ServiceUnavailable"
    door.queues.purge_error = None
    door.call("PurgeQueue", QueueUrl=url)
    assert door.call("ReceiveMessage", QueueUrl=url) == {}


def test_a_queue_that_is_made_again_may_be_purged_though_the_old_one_was() -> None:
    door = Door()
    url = door.create("orders")
    door.call("PurgeQueue", QueueUrl=url)
    door.clock.advance(1)
    del door.queues.shelves["orders"]  # through another door, which lets the name go at once
    door.call("PurgeQueue", QueueUrl=door.create("orders"))


def test_a_deleted_queues_name_is_free_after_a_minute() -> None:
    door = Door()
    url = door.create("orders")
    door.call("DeleteQueue", QueueUrl=url)
    assert refused(door, "DeleteQueue", QueueUrl=url) == "AWS.SimpleQueueService.NonExistentQueue"
    door.clock.advance(59_000)
    assert refused(door, "CreateQueue", QueueName="orders") == "AWS.SimpleQueueService.QueueDeletedRecently"
    door.clock.advance(1_001)
    door.create("orders")


def test_a_queue_is_made_while_one_of_its_name_is_being_deleted() -> None:
    door = Door()
    door.queues.create_errors = [QueueExistsError("orders is being deleted")] * 2
    door.create("orders")
    assert "orders" in door.queues.shelves
    door.queues.create_errors = [QueueExistsError("others is being deleted")] * 3
    assert refused(door, "CreateQueue", QueueName="others") == "QueueAlreadyExists"


@pytest.mark.parametrize("gone", [UnknownQueueError, UnknownTopicError])
def test_whoever_makes_a_queue_is_not_told_that_it_does_not_exist(gone: type[HeadraceError]) -> None:
    door = Door()
    door.queues.create_errors = [gone("orders was deleted right after")]
    assert door.create("orders").endswith("/orders")


def test_a_queue_is_not_deleted_by_whoever_is_no_administrator() -> None:
    door = Door(may_delete=False)
    assert refused(door, "DeleteQueue", QueueUrl=door.create("orders")) == "AccessDenied"
    assert "orders" in door.queues.shelves


def test_tags_are_kept_and_taken_off() -> None:
    door = Door()
    url = door.call("CreateQueue", QueueName="orders", tags={"team": "blue"})["QueueUrl"]
    door.call("TagQueue", QueueUrl=url, Tags={"stage": "test", "team": "red"})
    assert door.call("ListQueueTags", QueueUrl=url) == {"Tags": {"team": "red", "stage": "test"}}
    door.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
    door.call("UntagQueue", QueueUrl=url, TagKeys=["team", "absent"])
    assert door.call("ListQueueTags", QueueUrl=url) == {"Tags": {"stage": "test"}}
    door.call("UntagQueue", QueueUrl=url, TagKeys=["stage"])
    assert door.call("ListQueueTags", QueueUrl=url) == {}
    many = {str(n): "x" for n in range(51)}
    assert refused(door, "TagQueue", QueueUrl=url, Tags=many) == "InvalidParameterValue"
    assert refused(door, "TagQueue", QueueUrl=url, Tags={"k" * 129: "x"}) == "InvalidParameterValue"
    assert refused(door, "TagQueue", QueueUrl=url, Tags={}) == "MissingParameter"


def test_permissions_are_statements_of_the_policy() -> None:
    door = Door()
    url = door.create("orders")
    given = {"QueueUrl": url, "Label": "mine", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    door.call("AddPermission", **given)
    arn = "arn:aws:sqs:us-east-1:000000000000:orders"
    account = "arn:aws:iam::123456789012:root"
    statement = {"Effect": "Allow", "Action": "SQS:SendMessage", "Resource": arn}
    assert json.loads(attributes(door, url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [{**statement, "Sid": "mine", "Principal": {"AWS": account}}],
    }
    door.call("AddPermission", **{**given, "Label": "more", "Actions": ["SendMessage", "*"]})
    [_, second] = json.loads(attributes(door, url, "Policy")["Policy"])["Statement"]
    assert second["Action"] == ["SQS:SendMessage", "SQS:*"]
    door.call("RemovePermission", QueueUrl=url, Label="more")
    assert refused(door, "AddPermission", **given) == "InvalidParameterValue"
    for change in ({"Label": "a b"}, {"AWSAccountIds": ["me"]}, {"Actions": ["rm -rf"]}):
        assert refused(door, "AddPermission", **{**given, **change}) == "InvalidParameterValue"
    assert refused(door, "AddPermission", **{**given, "Actions": []}) == "MissingParameter"
    assert refused(door, "AddPermission", **{**given, "Label": "x", "Actions": ["A"] * 8}) == "OverLimit"
    door.call("RemovePermission", QueueUrl=url, Label="mine")
    assert "Policy" not in attributes(door, url)
    assert refused(door, "RemovePermission", QueueUrl=url, Label="mine") == "InvalidParameterValue"


@pytest.mark.parametrize("statements", ['"all"', "5", "null", '["all", 5]'])
def test_permissions_are_added_to_a_policy_that_says_nothing_sensible(statements: str) -> None:
    door = Door()
    url = door.create("orders")
    # As earlier versions stored it, which did not look at what a policy says.
    notes = {"sqs": {"attributes": {"Policy": f'{{"Statement": {statements}}}'}}}
    asyncio.run(door.queues.update("orders", notes=notes))
    given = {"QueueUrl": url, "Label": "mine", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    assert refused(door, "RemovePermission", QueueUrl=url, Label="mine") == "InvalidParameterValue"
    door.call("AddPermission", **given)
    [statement] = json.loads(attributes(door, url, "Policy")["Policy"])["Statement"]
    assert statement["Sid"] == "mine"


def test_dead_letters_are_moved_back_by_a_task_that_can_be_watched_and_cancelled() -> None:
    door = Door()
    door.create("dead")
    door.create("orders", RedrivePolicy=policy("dead"))
    arn = "arn:aws:sqs:us-east-1:000000000000"
    handle = door.call("StartMessageMoveTask", SourceArn=f"{arn}:dead", MaxNumberOfMessagesPerSecond=5)["TaskHandle"]
    [task] = door.call("ListMessageMoveTasks", SourceArn=f"{arn}:dead")["Results"]
    assert task == {
        "TaskHandle": handle,
        "Status": "RUNNING",
        "SourceArn": f"{arn}:dead",
        "MaxNumberOfMessagesPerSecond": 5,
        "ApproximateNumberOfMessagesMoved": 1,
        "ApproximateNumberOfMessagesToMove": 3,
        "StartedTimestamp": door.clock.wall_ms(),
    }
    assert door.call("CancelMessageMoveTask", TaskHandle=handle) == {"ApproximateNumberOfMessagesMoved": 1}
    [task] = door.call("ListMessageMoveTasks", SourceArn=f"{arn}:dead", MaxResults=10)["Results"]
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    assert refused(door, "CancelMessageMoveTask", TaskHandle=handle) == "ResourceNotFoundException"
    assert refused(door, "CancelMessageMoveTask", TaskHandle="forged") == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("no_source", "CouldNotDetermineMessageSource"),
        ("unknown_queue", "AWS.SimpleQueueService.NonExistentQueue"),
        ("disk_full", "ServiceUnavailable"),
        ("unheard_of", "InternalFailure"),
    ],
)
def test_a_move_task_that_failed_says_why_in_the_words_of_sqs(code: str, reason: str) -> None:
    door = Door()
    door.create("dead")
    door.create("orders", RedrivePolicy=policy("dead"))
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    door.call("StartMessageMoveTask", SourceArn=arn)
    [redrive] = door.queues.tasks["dead"]
    failed = {"state": RedriveState.FAILED, "failure": "no room", "failure_code": code}
    door.queues.tasks["dead"] = [msgspec.structs.replace(redrive, **failed)]
    [task] = door.call("ListMessageMoveTasks", SourceArn=arn)["Results"]
    assert (task["Status"], task["FailureReason"]) == ("FAILED", reason)


def test_a_move_task_that_makes_no_sense_is_refused() -> None:
    door = Door()
    for name in ("dead", "other"):
        door.create(name)
    door.create("other.fifo")
    door.create("orders", RedrivePolicy=policy("dead"))
    arn = "arn:aws:sqs:us-east-1:000000000000"
    start = {"SourceArn": f"{arn}:dead"}
    for more, code in (
        ({"SourceArn": f"{arn}:absent"}, "ResourceNotFoundException"),
        ({"SourceArn": f"{arn}:other"}, "InvalidParameterValue"),
        ({"SourceArn": "dead"}, "InvalidParameterValue"),
        ({"DestinationArn": f"{arn}:absent"}, "ResourceNotFoundException"),
        ({"DestinationArn": f"{arn}:dead"}, "InvalidParameterValue"),
        ({"DestinationArn": f"{arn}:other.fifo"}, "InvalidParameterValue"),
        ({"MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
    ):
        assert refused(door, "StartMessageMoveTask", **{**start, **more}) == code
    door.call("StartMessageMoveTask", **start, DestinationArn=f"{arn}:other")
    assert door.queues.redrives("dead")[0].target == "other"
