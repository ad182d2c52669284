"""`headrace bench` with loads so small that they say nothing about speed, and everything about the counting."""

import json
import subprocess
from typing import Any

import pytest
from tests.cli.running import HEADRACE, RunningNode, clean_environment

DEADLINE_S = 60.0


def bench(node: RunningNode, *arguments: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [*HEADRACE, "bench", *arguments, "--server", node.server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=clean_environment())
    assert done.returncode == exit_code, done.stderr[-2000:]
    return done


def bench_json(node: RunningNode, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bench(node, *arguments, "--json").stdout)
    return document


def test_as_many_messages_are_stored_as_were_asked_for(node: RunningNode, topic: str) -> None:
    sent = bench_json(node, "produce", topic, "--partitions", "2", "--messages", "2500", "--size", "100")
    assert (sent["messages"], sent["bytes"], sent["failed"]) == (2500, 250_000, 0)
    assert sent["latency_ms"]["p50"] > 0
    read = bench_json(node, "consume", topic, "--messages", "2500")
    assert (read["messages_total"], read["bytes_total"]) == (2500, 250_000)


def test_a_paced_load_takes_its_time_and_measures_every_message(node: RunningNode, topic: str) -> None:
    sent = bench_json(
        node, "produce", topic, "--partitions", "3", "--rate", "1000", "--messages", "300", "--linger", "0"
    )
    assert sent["messages"] == 300
    assert sent["seconds"] > 0.25  # as fast as possible, these would take a hundredth of that
    ordered = [sent["latency_ms"][name] for name in ("p50", "p90", "p99", "p999", "max")]
    assert ordered == sorted(ordered)
    assert ordered[0] > 0


def test_the_warm_up_of_a_load_is_sent_and_not_counted(node: RunningNode, topic: str) -> None:
    options = ("--rate", "1000", "--messages", "100", "--warmup", "0.2")
    sent = bench_json(node, "produce", topic, "--partitions", "1", *options)
    assert (sent["messages"], sent["messages_total"]) == (100, 300)


def test_a_load_in_time_stops_by_itself(node: RunningNode, topic: str) -> None:
    sent = bench_json(node, "produce", topic, "--partitions", "1", "--seconds", "0.2", "--acks", "1", "-z", "lz4")
    assert sent["messages"] > 0
    assert sent["seconds"] < 30


def test_latency_is_measured_for_messages_that_another_process_received(node: RunningNode, topic: str) -> None:
    options = ("--rate", "500", "--messages", "200", "--warmup", "0.2")
    found = bench_json(node, "latency", topic, "--partitions", "2", *options)
    assert (found["messages"], found["received"]) == (200, 300)
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["max"]
    assert found["acknowledged_ms"]["p50"] > 0


def test_a_load_goes_over_several_topics(node: RunningNode, topic: str) -> None:
    options = ("--topics", "3", "--partitions", "1")
    bench(node, "produce", topic, *options, "--rate", "3000", "--messages", "300")
    for index in range(3):
        assert bench_json(node, "consume", f"{topic}-{index}", "--messages", "100")["messages_total"] == 100


def test_people_get_a_table(node: RunningNode, topic: str) -> None:
    printed = bench(node, "produce", topic, "--partitions", "1", "--messages", "10").stdout
    assert "messages/s" in printed
    assert "p99.9" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--messages", "1", "--seconds", "1"), "not both"),
        (("--set", "retention.ms=1"), "needs --partitions"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    node: RunningNode, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(bench(node, "produce", "refused", *arguments, exit_code=2).stderr.split())


def test_without_the_client_library_one_sentence_says_what_to_install(node: RunningNode) -> None:
    without = "import sys; sys.modules['confluent_kafka'] = None; from headrace.cli.main import main; main()"
    command = [HEADRACE[0], "-c", without, "bench", "consume", "orders", "--server", node.server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=clean_environment())
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: headrace bench needs the package confluent-kafka")
    assert "run `pip install '.[bench]'` in a clone of headrace" in done.stderr
