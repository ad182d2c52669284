"""Arguments that can never be right: exit code 2, a sentence that says what to do, and never a traceback."""

import subprocess
from pathlib import Path

import pytest
from tests.cli.command import Headrace, check_refusal
from tests.cli.running import HEADRACE, RunningNode, clean_environment

DEADLINE_S = 60.0
FULL = Path("/dev/full")
NO_TEXT = "\udcff"  # how Python shows the byte 0xff of an argument


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "create", "no spaces"), "letters, digits"),
        (("queue", "create", "no spaces"), "letters, digits"),
        (("produce", "no spaces"), "letters, digits"),
        (("produce", "fresh", "--timestamp", "soon"), "is no time; write 2026-01-31"),
        (("produce", "fresh", "--timestamp", "99999999999999999999"), "milliseconds since 1970?"),
        (("produce", "fresh", "--delimiter", ""), "a delimiter must not be empty"),
        (("produce", "fresh", "--key-delimiter", ""), "a delimiter must not be empty"),
        (("consume", "fresh", "--since", "soon"), "is no time"),
        (("consume", "fresh", "--since", "99999999999999999999"), "milliseconds since 1970?"),
        (("consume", "fresh", "--format", "%z"), "%z is no field of a message; there are %s"),
        (("queue", "redrive", "fresh", "--before", "soon"), "is no time"),
        *(
            (command, "letters, digits")
            for command in (
                ("send", "bad name!", "tea"),
                ("receive", "bad name!"),
                ("worker", "teashop:brew", "--queue", "bad name!"),
                ("queue", "describe", "bad name!"),
                ("queue", "update", "bad name!", "-s", "lease=1m"),
                ("queue", "update", "fresh", "-s", "dead_letter=bad name!"),
                ("queue", "delete", "bad name!", "--yes"),
                ("queue", "purge", "bad name!", "--yes"),
                ("queue", "browse", "bad name!"),
                ("queue", "explain", "bad name!", "--key", "k"),
                ("queue", "redrive", "bad name!"),
                ("queue", "redrive", "fresh", "--to", "bad name!"),
                ("queue", "redrive", "fresh", "--source", "bad name!"),
                ("queue", "readers", "bad name!"),
                ("topic", "describe", "bad name!"),
                ("topic", "alter", "bad name!", "--partitions", "2"),
                ("topic", "delete", "fresh", "bad name!", "--yes"),
                ("consume", "bad name!"),
                ("group", "reset", "readers", "--to", "earliest", "--topic", "bad name!"),
                ("bench", "produce", "bad name!"),
                ("bench", "consume", "bad name!"),
                ("bench", "latency", "bad name!"),
            )
        ),
        (("group", "describe", ""), "must not be empty"),
        (("group", "delete", "", "--yes"), "must not be empty"),
        (("group", "reset", "", "--to", "earliest"), "must not be empty"),
        (("topic", "list", "--server", "nowhere"), "has no port"),
        (("queue", "list", "--http", "nowhere"), "has no port"),
        (("bench", "consume", "fresh", "--server", "nowhere"), "has no port"),
        (("topic", "describe", NO_TEXT), "is not UTF-8 text"),
        (("group", "describe", NO_TEXT), "is not UTF-8 text"),
        (("queue", "describe", NO_TEXT), "is not UTF-8 text"),
        (("produce", "fresh", "--key", NO_TEXT), "is not UTF-8 text"),
        (("send", "fresh", NO_TEXT), "is not UTF-8 text"),
    ],
)
def test_what_can_never_be_right_is_one_sentence_and_wrong_use(
    headrace: Headrace, arguments: tuple[str, ...], words: str
) -> None:
    check_refusal(headrace(*arguments, input="", code=2), words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "fresh", "--partitions", "99999999999"),
        ("topic", "create", "fresh", "--replication", "99999"),
        ("topic", "alter", "fresh", "--partitions", "99999999999"),
        ("topic", "list", "--timeout", "inf"),
        ("topic", "list", "--timeout", "10000000"),
        ("receive", "fresh", "--timeout", "inf"),
        ("consume", "fresh", "--from", "99999999999999999999"),
        ("group", "describe", "fresh", "--watch", "--interval", "inf"),
        ("group", "reset", "fresh", "--to", "9" * 5_000),
        ("queue", "create", "fresh", "--partitions", "10001"),
        ("queue", "redrive", "fresh", "--rate", "1000001"),
        ("bench", "produce", "fresh", "--partitions", "99999999999"),
        ("bench", "produce", "fresh", "--rate", "inf"),
        ("bench", "produce", "fresh", "--linger", "inf"),
        ("bench", "produce", "fresh", "--batch-messages", "99999999999"),
        ("bench", "produce", "fresh", "--batch-bytes", "99999999999"),
    ],
)
def test_a_number_that_no_request_can_carry_is_wrong_use(headrace: Headrace, arguments: tuple[str, ...]) -> None:
    result = headrace(*arguments, code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_time_of_a_message_that_no_calendar_has_is_printed_as_it_is(headrace: Headrace, topic: str) -> None:
    headrace("topic", "create", topic, "--set", "retention.ms=-1")
    headrace("produce", topic, "--input", "json", input='{"value":"a","timestamp_ms":9999999999999999}\n')
    assert headrace("consume", topic, "--until-end", "--timestamps").stdout == "9999999999999999\ta\n"


def test_a_load_that_finds_no_topic_says_so_and_nothing_else(node: RunningNode) -> None:
    command = [*HEADRACE, "bench", "latency", "absent", "--messages", "1", "--server", node.server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=clean_environment())
    assert done.returncode == 1
    assert done.stderr == "error: topic absent does not exist; let bench make it with --partitions\n"


def test_a_name_that_no_file_can_have_is_refused_in_one_sentence(headrace: Headrace) -> None:
    check_refusal(headrace("log", "verify", "a" * 300, code=1), "File name too long")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", [("topic", "list", "--json"), ("produce", "fresh")])
def test_a_closed_standard_stream_leads_nowhere(node: RunningNode, closed: str, arguments: tuple[str, ...]) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *HEADRACE, *arguments, "--server", node.server]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=DEADLINE_S, env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("consume", "{topic}", "--until-end"), ("topic", "list")])
def test_an_output_that_takes_no_more_ends_the_command_in_one_sentence(
    headrace: Headrace, node: RunningNode, topic: str, arguments: tuple[str, ...]
) -> None:
    headrace("produce", topic, input="tea\n")
    command = [*HEADRACE, *(argument.format(topic=topic) for argument in arguments), "--server", node.server]
    with FULL.open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, env=clean_environment()
        )
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
    assert done.returncode == 1
