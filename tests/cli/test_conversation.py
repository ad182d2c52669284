"""The client commands against a real node."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Headrace, check_refusal, json_lines


def read_all(headrace: Headrace, topic: str, *arguments: str) -> list[dict[str, Any]]:
    return json_lines(headrace("consume", topic, "--until-end", "--json", *arguments))


def create_for_old_times(headrace: Headrace, topic: str) -> None:
    """A topic for messages of long past times: with the usual retention a node drops them at its next look."""
    headrace("topic", "create", topic, "--set", "retention.ms=-1")


def test_a_first_conversation(headrace: Headrace, topic: str) -> None:
    assert "with 3 partitions" in headrace("topic", "create", topic, "--partitions", "3").stdout
    assert "Sent 1 message" in headrace("produce", topic, "-K", ":", input="alice:one tea\n").stderr
    assert headrace("consume", topic, "--until-end", "--keys").stdout == "alice\tone tea\n"


def test_what_is_sent_is_read_back_identically(headrace: Headrace, topic: str) -> None:
    create_for_old_times(headrace, topic)
    sent = headrace(
        *("produce", topic, "-K", "=", "-H", "shop=north", "-H", "shop=south", "-H", "empty="),
        *("--timestamp", "2023-11-14T22:13:20.123Z", "--json"),
        input="alice=one tea\nbob=\nno key\n",
    )
    assert json.loads(sent.stdout)["messages"] == 3
    messages = read_all(headrace, topic)
    assert [(m["key"], m["value"]) for m in messages] == [("alice", "one tea"), ("bob", ""), (None, "no key")]
    assert [m["offset"] for m in messages] == [0, 1, 2]
    assert {m["timestamp_ms"] for m in messages} == {1_700_000_000_123}
    assert messages[0]["headers"] == [
        {"name": "shop", "value": "north"},
        {"name": "shop", "value": "south"},
        {"name": "empty", "value": ""},
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(headrace: Headrace, topic: str, codec: str) -> None:
    lines = [f"message {number} " + "x" * 50 for number in range(500)]
    headrace("produce", topic, "-z", codec, input="\n".join(lines))
    assert headrace("consume", topic, "--until-end").stdout.splitlines() == lines


def test_bytes_that_are_no_text_survive_the_way_through_json(headrace: Headrace, topic: str) -> None:
    headrace("produce", topic, "-D", r"\0", input=b"\xff\xfe\n\x01\0second\nline")
    exported = headrace("consume", topic, "--until-end", "--json").stdout
    headrace("produce", f"{topic}-copy", "--input", "json", input=exported)
    original, copy = read_all(headrace, topic), read_all(headrace, f"{topic}-copy")
    assert [m.pop("topic") for m in copy] == [f"{topic}-copy"] * 2
    assert [m.pop("topic") for m in original] == [topic] * 2
    assert copy == original
    assert original[0]["value_base64"] == "//4KAQ=="


def test_null_is_sent_and_read_as_null(headrace: Headrace, topic: str) -> None:
    headrace("produce", topic, "-K", ":", "--empty-as-null", input="alice:\n:bob\n")
    assert [(m["key"], m["value"]) for m in read_all(headrace, topic)] == [("alice", None), (None, "bob")]


def test_reading_begins_where_it_is_told_to(headrace: Headrace, topic: str) -> None:
    create_for_old_times(headrace, topic)
    for number in range(10):
        stamp = str(1_700_000_000_000 + number * 1000)
        headrace("produce", topic, "--timestamp", stamp, input=f"{number}\n")

    def values(*arguments: str) -> list[int]:
        return [int(message["value"]) for message in read_all(headrace, topic, *arguments)]

    assert values() == list(range(10))
    assert values("--from", "beginning") == list(range(10))
    assert values("--from", "7") == [7, 8, 9]
    assert values("--from", "end") == []
    assert values("--last", "2") == [8, 9]
    assert values("--last", "100") == list(range(10))
    assert values("--since", "1700000005000") == [5, 6, 7, 8, 9]
    assert values("--since", "2023-11-14T22:13:28.500Z") == [9]
    assert values("--since", "2030-01-01T00:00:00Z") == []
    assert values("--from", "3", "--count", "2") == [3, 4]


def test_reading_stops_after_a_count_without_waiting_for_the_end(headrace: Headrace, topic: str) -> None:
    headrace("produce", topic, input="a\nb\nc\n")
    assert headrace("consume", topic, "--count", "2").stdout == "a\nb\n"


def test_columns_and_formats(headrace: Headrace, topic: str) -> None:
    create_for_old_times(headrace, topic)
    headrace("produce", topic, "-k", "alice", "-H", "a=b", "--timestamp", "1700000000123", input="tea\n")
    columns = headrace("consume", topic, "-e", "--places", "--timestamps", "--headers", "--keys").stdout
    assert columns == "0:0\t2023-11-14T22:13:20.123Z\ta=b\talice\ttea\n"
    assert headrace("consume", topic, "-e", "-f", r"%k:%s@%p/%o\n").stdout == "alice:tea@0/0\n"


def test_one_partition_is_written_and_read_alone(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "-p", "3")
    for partition in range(3):
        headrace("produce", topic, "-p", str(partition), input=f"{partition}\n")
    assert sorted(m["value"] for m in read_all(headrace, topic)) == ["0", "1", "2"]
    assert [m["value"] for m in read_all(headrace, topic, "-p", "1")] == ["1"]
    assert "there is no 3" in headrace("consume", topic, "-e", "-p", "3", code=1).stderr
    assert "there is no 9" in headrace("produce", topic, "-p", "9", input="x", code=1).stderr


def test_a_file_is_sent_line_by_line(headrace: Headrace, topic: str, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(5_000)]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines))
    headrace("produce", topic, str(file), "--compression", "lz4")
    assert headrace("consume", topic, "--until-end").stdout.splitlines() == lines
    assert "cannot be read" in headrace("produce", topic, str(tmp_path / "absent"), code=1).stderr


def test_a_topic_is_described_altered_and_deleted(headrace: Headrace, topic: str) -> None:
    created = json.loads(headrace("topic", "create", topic, "-s", "retention.ms=60000", "--json").stdout)
    assert created["created"] is True
    headrace("produce", topic, input="a\nb\n")
    described = json.loads(headrace("topic", "describe", topic, "--json").stdout)
    assert described["id"] == created["id"]
    assert [(p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [(0, 2)]
    settings = {entry["name"]: entry for entry in described["settings"]}
    assert (settings["retention.ms"]["value"], settings["retention.ms"]["is_default"]) == ("60000", False)
    assert settings["headrace.durability"]["is_default"] is True
    altered = json.loads(
        headrace(
            *("topic", "alter", topic, "-s", "segment.ms=5000", "--unset", "retention.ms", "-p", "4", "--json")
        ).stdout
    )
    assert altered["partitions"] == 4
    assert altered["settings"] == {"segment.ms": "5000"}
    assert topic in headrace("topic", "list").stdout
    assert "start offset" in headrace("topic", "describe", topic).stdout
    headrace("topic", "delete", topic, "--yes")
    assert topic not in {t["name"] for t in json.loads(headrace("topic", "list", "--json").stdout)}
    assert topic in headrace("topic", "describe", topic, code=1).stderr


def test_a_typo_among_topics_to_delete_is_named_and_the_others_are_gone(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic)
    refused = headrace("topic", "delete", topic, f"{topic}-typo", "--yes", code=1)
    check_refusal(refused, f"{topic}-typo does not exist")
    assert f"(deleted: {topic})" in refused.stderr
    headrace("topic", "create", topic)
    assert headrace("topic", "delete", topic, topic, "--yes").stdout == f"Deleted {topic}.\n"


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic)
    refused = headrace("topic", "create", topic, code=1)
    assert topic in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert json.loads(headrace("topic", "create", topic, "--if-missing", "--json").stdout)["created"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "create", "fresh", "-s", "retention.mss=1"), "did you mean retention.ms?"),
        (("topic", "create", "fresh", "-s", "retention.ms=soon"), "whole number"),
        (("topic", "create", "fresh", "-s", "retention.ms=1_000"), "whole number"),
        (("topic", "create", "fresh", "-s", "retention.ms=\u0661\u0660\u0660"), "whole number"),
        (("topic", "create", "fresh", "-s", "min.cleanable.dirty.ratio=0.2_5"), "a number from 0 to 1"),
        (("topic", "create", "fresh", "-r", "3"), "replica"),
        (("topic", "describe", "absent"), "absent"),
        (("topic", "delete", "absent", "--yes"), "absent"),
        (("topic", "delete", "fresh"), "--yes"),
        (("topic", "alter", "absent", "-s", "retention.ms=1"), "absent"),
        (("consume", "absent"), "absent"),
    ],
)
def test_a_refusal_is_one_sentence_that_says_what_to_do(
    headrace: Headrace, arguments: tuple[str, ...], words: str
) -> None:
    check_refusal(headrace(*arguments, code=1), words)


def test_a_setting_that_is_none_cannot_be_unset(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic)
    check_refusal(headrace("topic", "alter", topic, "--unset", "retention.mss", code=1), "did you mean retention.ms?")
    unset = headrace("topic", "alter", topic, "--unset", "retention.ms", "--json")
    assert json.loads(unset.stdout)["settings"] == {}


def test_fewer_partitions_are_refused(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "-p", "3")
    assert "partitions" in headrace("topic", "alter", topic, "-p", "2", code=1).stderr


def test_an_offset_beyond_the_end_is_refused_with_the_offsets_that_are_there(headrace: Headrace, topic: str) -> None:
    headrace("produce", topic, input="a\nb\n")
    assert topic in headrace("consume", topic, "--from", "50", code=1).stderr
