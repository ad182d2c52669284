"""What careful users check: boto3 against a real node, one sentence after the other."""

import hashlib
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.compat.sqs import Stopwatch, TestQueue, connect, queue_name, refused
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

Make = Callable[..., TestQueue]


@pytest.fixture
def client(node: NodeProcess) -> Any:
    return connect(node)


@pytest.fixture
def make(client: Any, request: pytest.FixtureRequest) -> Make:
    """Makes queues of names that no other test has."""

    def make(suffix: str = "", **attributes: str) -> TestQueue:
        return TestQueue(client, queue_name(request.node.name) + suffix, **attributes)

    return make


def in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


# Receipts.


def test_every_receive_mints_a_new_receipt_and_an_old_one_deletes_quietly(make: Make) -> None:
    queue = make()
    queue.send("x")
    first = queue.receive_one(VisibilityTimeout=0)
    second = queue.receive_one()
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert first["MessageId"] == second["MessageId"]
    queue.delete(first)
    assert queue.counts() == (0, 1, 0)
    queue.delete(second)
    assert queue.counts() == (0, 0, 0)
    queue.delete(second)


def test_the_newest_receipt_of_a_standard_queue_deletes_however_late(make: Make) -> None:
    queue = make()
    queue.send("x")
    queue.delete(queue.receive_one(VisibilityTimeout=0))
    assert queue.counts() == (0, 0, 0)
    for body in ("x", "y", "z"):
        queue.send(body)
    newest = queue.receive(3, VisibilityTimeout=1)
    assert len(newest) == 3
    wait_until(lambda: queue.counts() == (3, 0, 0), deadline_s=20, what=lambda: f"all are visible: {queue.counts()}")
    queue.delete(newest[0])
    entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(newest[1:])]
    answer = queue.client.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "1"]
    assert queue.counts() == (0, 0, 0)


def test_fifo_refuses_a_delete_once_the_lease_has_expired(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    queue.send("x", MessageGroupId="g")
    old = queue.receive_one(VisibilityTimeout=1)
    new = queue.receive_one()
    assert old["MessageId"] == new["MessageId"]
    code = refused(queue.client.delete_message, QueueUrl=queue.url, ReceiptHandle=old["ReceiptHandle"])
    assert code == "InvalidParameterValue"
    queue.delete(new)
    assert queue.counts() == (0, 0, 0)


def test_a_forged_receipt_and_another_queues_receipt_are_refused(make: Make) -> None:
    queue, other = make("-a"), make("-b")
    other.send("x")
    foreign = other.receive_one()["ReceiptHandle"]
    for receipt in ("forged", foreign, foreign[:-2] + "xx"):
        code = refused(queue.client.delete_message, QueueUrl=queue.url, ReceiptHandle=receipt)
        assert code == "ReceiptHandleIsInvalid"


# Visibility.


def test_a_message_reappears_when_its_visibility_is_over(make: Make) -> None:
    queue = make(VisibilityTimeout="1")
    queue.send("x")
    first = queue.receive_one()
    assert queue.receive() == []
    again = queue.receive_one()
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert (
        first["Attributes"]["ApproximateFirstReceiveTimestamp"]
        == again["Attributes"]["ApproximateFirstReceiveTimestamp"]
    )


def test_visibility_is_extended_and_given_back(make: Make) -> None:
    queue = make(VisibilityTimeout="2")
    queue.send("x")
    receipt = queue.receive_one()["ReceiptHandle"]
    change = queue.client.change_message_visibility
    change(QueueUrl=queue.url, ReceiptHandle=receipt, VisibilityTimeout=600)
    assert queue.receive(wait_s=3) == []
    change(QueueUrl=queue.url, ReceiptHandle=receipt, VisibilityTimeout=0)
    assert queue.receive_one()["Body"] == "x"
    code = refused(change, QueueUrl=queue.url, ReceiptHandle=receipt, VisibilityTimeout=5)
    assert code == "AWS.SimpleQueueService.MessageNotInflight"


def test_more_than_twelve_hours_of_visibility_in_total_are_an_error(make: Make) -> None:
    queue = make()
    queue.send("x")
    watch = Stopwatch()
    receipt = queue.receive_one(VisibilityTimeout=43_200)["ReceiptHandle"]
    change = {"QueueUrl": queue.url, "ReceiptHandle": receipt}
    assert (
        refused(queue.client.change_message_visibility, **change, VisibilityTimeout=43_201) == "InvalidParameterValue"
    )
    wait_until(lambda: watch.seconds > 1.1, deadline_s=20, what=lambda: "a second of the lease is over")
    assert (
        refused(queue.client.change_message_visibility, **change, VisibilityTimeout=43_200) == "InvalidParameterValue"
    )
    queue.client.change_message_visibility(**change, VisibilityTimeout=43_100)


# Dead letters.


def test_a_message_moves_to_the_dead_letter_queue_when_its_receives_exceed_the_maximum(make: Make) -> None:
    dead = make("-dead")
    queue = make(VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(2))
    sent = queue.send("x", MessageAttributes={"color": {"StringValue": "blue", "DataType": "String"}})
    first, second = queue.receive_one(), queue.receive_one()
    assert [m["Attributes"]["ApproximateReceiveCount"] for m in (first, second)] == ["1", "2"]
    assert queue.receive() == []
    letter = dead.receive_one()
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["MessageAttributes"]["color"]["StringValue"] == "blue"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn
    # A standard dead-letter queue keeps the time of the first send, and goes on counting receives.
    assert letter["Attributes"]["SentTimestamp"] == first["Attributes"]["SentTimestamp"]
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"


def test_receives_are_counted_across_a_chain_of_dead_letter_queues_and_anew_after_a_move_task(make: Make) -> None:
    last = make("-last")
    middle = make("-middle", VisibilityTimeout="0", RedrivePolicy=last.redrive_policy(1))
    queue = make(VisibilityTimeout="0", RedrivePolicy=middle.redrive_policy(2))
    queue.send("x")
    sent = [queue.receive_one(), queue.receive_one(), middle.receive_one(), last.receive_one(VisibilityTimeout=0)]
    counts = [message["Attributes"]["ApproximateReceiveCount"] for message in sent]
    assert counts == ["1", "2", "3", "4"]
    assert len({message["Attributes"]["SentTimestamp"] for message in sent}) == 1
    last.client.start_message_move_task(SourceArn=last.arn, DestinationArn=queue.arn)
    assert queue.receive_one()["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_queue_may_be_its_own_dead_letter_queue(make: Make) -> None:
    queue = make(VisibilityTimeout="0")
    queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={"RedrivePolicy": queue.redrive_policy(2)})
    queue.send("x")
    received = [queue.receive_one()["Attributes"] for _ in range(5)]
    assert [attributes["ApproximateReceiveCount"] for attributes in received] == ["1", "2", "3", "4", "5"]
    sources = [attributes.get("DeadLetterQueueSourceArn") for attributes in received]
    assert sources == [None, None, queue.arn, queue.arn, queue.arn]
    listed = queue.client.list_dead_letter_source_queues(QueueUrl=queue.url)["queueUrls"]
    assert listed == [queue.url]


def test_a_lowered_maximum_counts_the_receives_of_before(make: Make) -> None:
    dead = make("-dead")
    queue = make(VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(10))
    queue.send("x")
    for _ in range(3):
        queue.receive_one()
    queue.set(RedrivePolicy=dead.redrive_policy(2))
    assert dead.receive_one()["Body"] == "x"
    assert queue.counts() == (0, 0, 0)


def test_a_fifo_dead_letter_queue_that_was_deleted_is_made_again_as_one(make: Make) -> None:
    dead = make("-dead.fifo")
    queue = make(".fifo", VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(1))
    queue.client.delete_queue(QueueUrl=dead.url)
    for body in ("first", "second"):
        queue.send(body, MessageGroupId="g", MessageDeduplicationId=body)
    queue.receive_all(2)

    def is_there() -> bool:
        return dead.url in queue.client.list_queues(QueueNamePrefix=dead.name).get("QueueUrls", ())

    wait_until(is_there, deadline_s=20, what=lambda: "the queue is there again")
    assert dead.attribute("FifoQueue") == "true"
    letters = dead.receive_all(2)
    assert [letter["Body"] for letter in letters] == ["first", "second"]
    assert {letter["Attributes"]["MessageGroupId"] for letter in letters} == {"g"}


def test_the_dead_letter_queue_must_be_there_and_of_the_same_type(make: Make) -> None:
    queue, fifo = make(), make(".fifo")
    for target in (fifo.redrive_policy(1), fifo.redrive_policy(1).replace(".fifo", "-absent")):
        attributes = {"RedrivePolicy": target}
        code = refused(queue.client.set_queue_attributes, QueueUrl=queue.url, Attributes=attributes)
        assert code == "InvalidParameterValue"


def test_dead_letters_go_back_by_a_move_task(make: Make) -> None:
    dead = make("-dead")
    queue = make(VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(1))
    sent = {queue.send(str(number))["MessageId"] for number in range(3)}
    queue.receive_all(3)
    wait_until(lambda: dead.counts()[0] == 3, deadline_s=30, what=lambda: f"three dead letters, not {dead.counts()}")
    client = queue.client
    assert client.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"] == [queue.url]
    queue.set(VisibilityTimeout="60")
    client.start_message_move_task(SourceArn=dead.arn)
    back = queue.receive_all(3)
    assert {message["MessageId"] for message in back} == sent

    def is_over() -> bool:
        [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return bool(task["Status"] == "COMPLETED" and task["ApproximateNumberOfMessagesMoved"] == 3)

    wait_until(is_over, deadline_s=30, what=lambda: "the task is over")
    assert dead.counts() == (0, 0, 0)


@pytest.mark.parametrize("round", range(5))
def test_a_move_task_that_starts_as_soon_as_the_count_reads_ten_moves_all_ten(make: Make, round: int) -> None:
    dead = make("-dead")
    queue = make(VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(1))
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)
    queue.receive_all(10)
    end_s = time.monotonic() + 30
    while dead.counts()[0] < 10:  # without a pause: the sooner the task starts, the more of the ten are not on disk
        assert time.monotonic() < end_s, f"ten dead letters, not {dead.counts()}"
    queue.client.start_message_move_task(SourceArn=dead.arn)

    def task() -> dict[str, Any]:
        [found] = queue.client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return dict(found)

    wait_until(lambda: task()["Status"] != "RUNNING", deadline_s=30, what="the task is over")
    assert (task()["Status"], task()["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 10)
    assert dead.counts() == (0, 0, 0)


def test_a_fifo_message_has_a_deduplication_id_as_a_dead_letter_and_when_it_is_back(make: Make) -> None:
    dead = make("-dead.fifo")
    queue = make(".fifo", VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(1))
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    sent = queue.send("x", **ids)
    assert queue.receive_one()["Attributes"]["MessageDeduplicationId"] == "1"
    letter = dead.receive_one(VisibilityTimeout=0)
    assert letter["Attributes"]["MessageDeduplicationId"] == sent["MessageId"]
    queue.set(VisibilityTimeout="60")
    queue.client.start_message_move_task(SourceArn=dead.arn)
    back = queue.receive_one()
    assert back["MessageId"] == sent["MessageId"]
    assert back["Attributes"]["MessageDeduplicationId"] == sent["MessageId"]


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_messages_that_come_back_take_turns(make: Make, suffix: str) -> None:
    queue = make(suffix)
    for body in "abc":
        group = {"MessageGroupId": body, "MessageDeduplicationId": body} if suffix else {}
        queue.send(body, **group)
    found = []
    for _ in range(12):
        message = queue.receive_one()
        found.append(message["Body"])
        queue.client.change_message_visibility(
            QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    assert found == ["a", "b", "c"] * 4


def test_a_move_task_fails_where_letters_do_not_say_where_they_came_from(make: Make) -> None:
    dead = make("-dead")
    make(RedrivePolicy=dead.redrive_policy(1))
    dead.send("direct")
    dead.client.start_message_move_task(SourceArn=dead.arn)

    def task() -> dict[str, Any]:
        [found] = dead.client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
        return dict(found)

    wait_until(lambda: task()["Status"] != "RUNNING", deadline_s=30, what=lambda: "the task is over")
    assert (task()["Status"], task()["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert dead.counts() == (1, 0, 0)


def test_a_running_move_task_is_cancelled(make: Make) -> None:
    dead, target = make("-dead"), make("-target")
    queue = make(VisibilityTimeout="0", RedrivePolicy=dead.redrive_policy(1))
    for number in range(20):
        queue.send(str(number))
    queue.receive_all(20)
    wait_until(lambda: dead.counts()[0] == 20, deadline_s=30, what=lambda: f"20 dead letters, not {dead.counts()}")
    client = queue.client
    start = {"SourceArn": dead.arn, "DestinationArn": target.arn, "MaxNumberOfMessagesPerSecond": 1}
    handle = client.start_message_move_task(**start)["TaskHandle"]
    assert refused(client.start_message_move_task, **start) == "InvalidParameterValue"
    target.receive_one()
    moved = client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert moved < 20
    [task] = client.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert task["Status"] in ("CANCELLING", "CANCELLED")


# FIFO.


def test_one_receive_may_hold_several_messages_of_a_group_in_order_and_mix_groups(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    for number in range(3):
        for group in "ab":
            queue.send(f"{group}{number}", MessageGroupId=group)
    got = queue.receive(10)
    bodies = [message["Body"] for message in got]
    assert [body for body in bodies if body.startswith("a")] == ["a0", "a1", "a2"]
    assert [body for body in bodies if body.startswith("b")] == ["b0", "b1", "b2"]
    numbers = [message["Attributes"]["SequenceNumber"] for message in got if message["Body"].startswith("a")]
    assert numbers == sorted(numbers)
    assert all(len(number) == 20 for number in numbers)


def test_a_group_waits_while_one_of_its_messages_is_held(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    for body in ("a0", "a1", "b0"):
        queue.send(body, MessageGroupId=body[0])
    first = queue.receive_one()
    assert first["Body"] == "a0"
    assert [message["Body"] for message in queue.receive(10)] == ["b0"]
    queue.delete(first)
    assert queue.receive_one()["Body"] == "a1"


def test_a_repeated_receive_attempt_gets_the_same_messages(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    for body in "abcd":
        queue.send(body, MessageGroupId="g")
    first = queue.receive(2, ReceiveRequestAttemptId="try-1")
    again = queue.receive(2, ReceiveRequestAttemptId="try-1")
    assert [m["MessageId"] for m in first] == [m["MessageId"] for m in again]
    assert [m["Body"] for m in again] == ["a", "b"]
    for message in again:
        queue.delete(message)


def test_fifo_refuses_a_delay_for_one_message(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    with pytest.raises(ClientError, match="DelaySeconds"):
        queue.send("x", MessageGroupId="g", DelaySeconds=5)


def test_duplicates_by_id_and_by_content_are_answered_with_the_first(make: Make) -> None:
    by_content, by_id = make("-content.fifo", ContentBasedDeduplication="true"), make("-id.fifo")
    first = by_content.send("x", MessageGroupId="g")
    again = by_content.send("x", MessageGroupId="g")
    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    by_id.send("x", MessageGroupId="g", MessageDeduplicationId="1")
    by_id.send("y", MessageGroupId="g", MessageDeduplicationId="1")
    by_id.send("y", MessageGroupId="g", MessageDeduplicationId="2")
    got = by_content.receive_one()
    assert got["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"x").hexdigest()
    by_content.delete(got)
    # Remembered after it is gone.
    by_content.send("x", MessageGroupId="g")
    assert by_content.receive() == []
    assert [message["Body"] for message in by_id.receive(10)] == ["x", "y"]


def test_high_throughput_fifo_deduplicates_within_a_group(make: Make) -> None:
    queue = make(".fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    for group in ("a", "b", "a"):
        queue.send(group, MessageGroupId=group, MessageDeduplicationId="same")
    got = queue.receive_all(2)
    assert sorted(message["Body"] for message in got) == ["a", "b"]
    assert {message["Attributes"]["MessageDeduplicationId"] for message in got} == {"same"}
    assert queue.receive() == []


# Batches and limits.


def test_a_batch_answers_with_failures_for_each_entry(make: Make) -> None:
    queue = make()
    entries = [{"Id": "ok", "MessageBody": "x"}, {"Id": "bad", "MessageBody": "\x00"}]
    answer = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["ok"]
    assert [(entry["Id"], entry["SenderFault"]) for entry in answer["Failed"]] == [("bad", True)]
    receipt = queue.receive_one()["ReceiptHandle"]
    gone = queue.client.delete_message_batch(
        QueueUrl=queue.url,
        Entries=[{"Id": "1", "ReceiptHandle": receipt}, {"Id": "2", "ReceiptHandle": "forged"}],
    )
    assert [entry["Id"] for entry in gone["Successful"]] == ["1"]
    assert [entry["Code"] for entry in gone["Failed"]] == ["ReceiptHandleIsInvalid"]


def test_ten_go_in_and_out_in_one_call_each(make: Make) -> None:
    queue = make()
    entries = [{"Id": str(n), "MessageBody": f"body {n}"} for n in range(10)]
    sent = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)["Successful"]
    got = queue.receive_all(10)
    assert {m["MessageId"] for m in got} == {entry["MessageId"] for entry in sent}
    changes = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 60} for n, m in enumerate(got)]
    changed = queue.client.change_message_visibility_batch(QueueUrl=queue.url, Entries=changes)
    assert len(changed["Successful"]) == 10
    receipts = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
    assert len(queue.client.delete_message_batch(QueueUrl=queue.url, Entries=receipts)["Successful"]) == 10
    assert queue.counts() == (0, 0, 0)


def test_the_limit_of_size_is_for_a_message_and_for_the_sum_of_a_batch(make: Make) -> None:
    queue = make()
    assert len(queue.send("x" * 1_048_576)["MessageId"]) == 36
    assert queue.receive_one()["Body"] == "x" * 1_048_576
    assert (
        refused(queue.client.send_message, QueueUrl=queue.url, MessageBody="x" * 1_048_577) == "InvalidParameterValue"
    )
    entries = [{"Id": str(n), "MessageBody": "x" * 524_289} for n in range(2)]
    code = refused(queue.client.send_message_batch, QueueUrl=queue.url, Entries=entries)
    assert code == "AWS.SimpleQueueService.BatchRequestTooLong"


def test_ids_of_a_batch_must_be_distinct(make: Make) -> None:
    queue = make()
    entries = [{"Id": "same", "MessageBody": "x"}, {"Id": "same", "MessageBody": "y"}]
    with pytest.raises(queue.client.exceptions.BatchEntryIdsNotDistinct):
        queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)


# Contents.


def test_bodies_and_attributes_come_back_as_they_went(make: Make) -> None:
    # boto3 itself compares the digest of the body.
    queue = make()
    attributes = {
        "text": {"StringValue": "größe \U0001f680", "DataType": "String"},
        "number": {"StringValue": "-1.5e3", "DataType": "Number.float"},
        "bytes": {"BinaryValue": bytes(range(256)), "DataType": "Binary.raw"},
    }
    body = 'tab\t, line\r\n, <xml>&"quotes", größe \U0001f680'
    sent = queue.send(body, MessageAttributes=attributes)
    got = queue.receive_one()
    assert got["Body"] == body
    assert got["MessageAttributes"] == attributes
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize("body", ["\x00", "bell\a", "\ufffe", "\uffff"])
def test_characters_outside_xml_are_refused(make: Make, body: str) -> None:
    assert (
        refused(make("-odd").client.send_message, QueueUrl=make("-odd").url, MessageBody=body)
        == "InvalidMessageContents"
    )


# Waiting.


def test_a_long_poll_returns_as_soon_as_a_message_is_there(make: Make, node: NodeProcess) -> None:
    queue = make()
    # A client of its own: connections of one client are no matter of this test.
    waiting = connect(node)
    watch = Stopwatch()
    thread, results = in_background(lambda: waiting.receive_message(QueueUrl=queue.url, WaitTimeSeconds=20))
    queue.send("x")
    thread.join(timeout=15)
    [answer] = results
    assert answer["Messages"][0]["Body"] == "x"
    assert watch.seconds < 10


def test_a_long_poll_with_nothing_to_get_ends_empty(make: Make) -> None:
    watch = Stopwatch()
    assert make().receive(wait_s=1) == []
    assert 0.9 < watch.seconds < 10


def test_a_delayed_message_is_handed_out_when_its_time_has_come(make: Make) -> None:
    queue = make()
    watch = Stopwatch()
    queue.send("x", DelaySeconds=1)
    assert queue.counts() == (0, 0, 1)
    assert queue.receive_one()["Body"] == "x"
    assert watch.seconds > 0.9


# Queues.


def test_create_is_idempotent_only_with_the_same_attributes(make: Make) -> None:
    queue = make(VisibilityTimeout="77")
    again = queue.client.create_queue(QueueName=queue.name, Attributes={"VisibilityTimeout": "77"})
    assert again["QueueUrl"] == queue.url
    with pytest.raises(queue.client.exceptions.QueueNameExists):
        queue.client.create_queue(QueueName=queue.name, Attributes={"VisibilityTimeout": "78"})


@pytest.mark.skipif(not os.environ.get("HEADRACE_LONG"), reason="SQS's shortest retention is a minute")
def test_lowering_retention_expires_what_is_already_there(make: Make) -> None:
    queue = make()
    queue.send("x")
    queue.set(MessageRetentionPeriod="60")
    wait_until(lambda: queue.counts() == (0, 0, 0), deadline_s=90, what=lambda: f"no message, not {queue.counts()}")


def test_a_message_of_sqs_is_seen_by_rest_and_the_other_way_round(make: Make, node: NodeProcess) -> None:
    queue = make(VisibilityTimeout="0")
    queue.send("from sqs", MessageAttributes={"color": {"StringValue": "blue", "DataType": "String"}})
    with urllib.request.urlopen(f"http://{node.http}/queues/{queue.name}/messages", timeout=30) as answer:
        [message] = json.load(answer)["messages"]
    assert message["body"] == "from sqs"
    assert message["headers"]["sqs-attr-color"] == "String:blue"
    other = make("-other")
    request = urllib.request.Request(
        f"http://{node.http}/queues/{other.name}/messages",
        data=b'{"message": "from rest"}',
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=30).close()
    got = other.receive_one()
    assert got["Body"] == "from rest"
    other.delete(got)
    assert other.counts() == (0, 0, 0)


def test_approximate_counts_tell_visible_leased_and_delayed(make: Make) -> None:
    queue = make()
    for delay_s in (0, 0, 0, 600, 600):
        queue.send("x", DelaySeconds=delay_s)
    queue.receive_one()
    assert queue.counts() == (2, 1, 2)


def test_a_purge_empties_the_queue_and_a_second_one_has_to_wait(make: Make) -> None:
    queue = make()
    for _ in range(3):
        queue.send("x")
    queue.receive_one()
    queue.client.purge_queue(QueueUrl=queue.url)
    assert queue.counts() == (0, 0, 0)
    with pytest.raises(queue.client.exceptions.PurgeQueueInProgress):
        queue.client.purge_queue(QueueUrl=queue.url)


def test_what_was_purged_of_a_fifo_queue_may_be_sent_again(make: Make) -> None:
    queue = make(".fifo", ContentBasedDeduplication="true")
    queue.send("x", MessageGroupId="g")
    queue.client.purge_queue(QueueUrl=queue.url)
    queue.send("x", MessageGroupId="g")
    assert queue.receive_one()["Body"] == "x"


def test_a_deleted_queue_is_gone_and_its_name_rests(make: Make) -> None:
    queue = make()
    client = queue.client
    client.delete_queue(QueueUrl=queue.url)
    with pytest.raises(client.exceptions.QueueDoesNotExist) as refusal:
        client.get_queue_url(QueueName=queue.name)
    assert refusal.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        queue.send("x")
    with pytest.raises(client.exceptions.QueueDeletedRecently):
        client.create_queue(QueueName=queue.name)


def test_queues_are_listed_in_pages_by_the_sdks_own_paginator(make: Make) -> None:
    urls = sorted(make(f"-{number}").url for number in range(5))
    prefix = urls[0].rpartition("/")[2][:-2]
    pages = urls and make("-0").client.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
    )
    found = [page["QueueUrls"] for page in pages]
    assert [len(page) for page in found] == [2, 2, 1]
    assert [url for page in found for url in page] == urls


def test_tags_permissions_and_attributes_that_nobody_obeys_are_given_back(make: Make) -> None:
    statement = {"Sid": "first", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    queue = make(Policy=policy, KmsMasterKeyId="alias/aws/sqs")
    client = queue.client
    client.tag_queue(QueueUrl=queue.url, Tags={"team": "blue"})
    client.add_permission(QueueUrl=queue.url, Label="mine", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    assert client.list_queue_tags(QueueUrl=queue.url)["Tags"] == {"team": "blue"}
    assert queue.attribute("KmsMasterKeyId") == "alias/aws/sqs"
    assert [one["Sid"] for one in json.loads(queue.attribute("Policy"))["Statement"]] == ["first", "mine"]
    client.remove_permission(QueueUrl=queue.url, Label="mine")
    client.untag_queue(QueueUrl=queue.url, TagKeys=["team"])
    assert "Tags" not in client.list_queue_tags(QueueUrl=queue.url)
