"""From measured rates to machines: the arithmetic by hand, where figures come from, and a node that is measured."""

import json
import math
from pathlib import Path

import pytest
from tests.spark.pipeline_run import RecordingView
from tests.support.node import NodeProcess

from headrace.client.errors import UnreachableError
from headrace.client.queue.sync import Client
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.capacity import TB, Load, Machine, Need, plan
from headrace.spark.pipeline.capacity_run import CapacityOptions, run
from headrace.spark.pipeline.figures import Figure, benchmarked, chosen, shipped
from headrace.spark.pipeline.measure import Measurement
from headrace.spark.pipeline.run import RunSettings, execute
from headrace.spark.pipeline.summary import Summary

ROUND = {
    name: Figure(name, value, "for the test")
    for name, value in {
        "produce": 500_000.0,
        "consume": 1_000_000.0,
        "partition": 250_000.0,
        "send": 100_000.0,
        "receive": 50_000.0,
        "acknowledge": 50_000.0,
        "archive": 10_000.0,
        "record_overhead": 0.0,
    }.items()
}


def needs(load: Load, machine: Machine) -> tuple[Need, Need]:
    streams, queues = plan(load, machine, ROUND).needs
    return streams, queues


def summary_of(options: CapacityOptions, state: Path) -> Summary:
    settings = RunSettings(state=state, id="capacity")
    return execute("capacity", options.identity(), lambda given: run(options, given), settings, RecordingView())[1]


def test_work_adds_up_what_is_done_with_a_message() -> None:
    # streams: 3/500k + (2+1)/1M = 9 us; x 100k/s = 0.9 nodes; / 0.5 = 1.8, so 2 nodes, on machines of 1 node: 2.
    # queues: 10 + 20 + 20 + 2 x (2 + 1) + 1 = 57 us; x 100k/s / 0.5 = 11.4, so 12.
    machine = Machine(cores=2, disk_bytes=1e18, network_bits_per_s=1e18, headroom=0.5, spare=0)
    streams, queues = needs(Load(), machine)
    assert (streams.machines, streams.decided_by) == (3, "replicas")
    assert "1.80, so 2" in streams.steps[1].result
    assert "57.00 us" in queues.steps[0].result
    assert (queues.machines, queues.nodes, queues.decided_by) == (12, 12, "work")


def test_data_is_messages_by_days_by_bytes_by_replicas() -> None:
    load = Load(message_bytes=1_000, compression=4)
    result = plan(load, Machine(disk_bytes=1 * TB, disk_fill_max=0.5, spare=2), ROUND)
    assert result.data_bytes == pytest.approx(1e9 * 7 * 250 * 3)
    assert result.needs[0].machines == math.ceil(5.25 / 0.5) + 2
    assert result.needs[0].decided_by == "data"


def test_network_counts_copies_and_readers() -> None:
    # In: 100k/s x 1,000 B x 8 x 3 = 2.4 Gbit/s; out: 2 followers and 9 readers = 8.8 Gbit/s; half of 1 Gbit/s each.
    load = Load(message_bytes=1_000, readers=9)
    machine = Machine(disk_bytes=1e18, network_bits_per_s=1e9, headroom=0.5, spare=0)
    assert (needs(load, machine)[0].machines, needs(load, machine)[0].decided_by) == (18, "network")


def test_partitions_are_spread_evenly_over_the_nodes() -> None:
    for use in needs(Load(), Machine()):
        assert use.partitions % use.nodes == 0
        assert use.partitions * 100e9 >= 7e9 * 1024


def test_the_archive_is_twice_as_fast_as_messages_come() -> None:
    assert plan(Load(), Machine(), ROUND).archive_cores == 3  # 2 x 11,574 / 10,000


def test_every_step_and_every_figure_is_in_the_answer(tmp_path: Path) -> None:
    page = tmp_path / "capacity.html"
    summary = summary_of(CapacityOptions(given={"produce": 123_456.0}, report=page), tmp_path / "state")
    assert summary.figures["figure produce"] == "123,456 messages/s (given)"
    assert "shipped: benchmark throughput" in str(summary.figures["figure consume"])
    steps = {row[0] for row in summary.rows}
    assert {"streams: machines", "queues: work of a message", "data, all copies"} <= steps
    text = page.read_text()
    assert "123,456" in text
    assert "replicas / produce + (replicas - 1 + readers) / consume" in text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"messages_per_day": 0}, "--messages 0 has to be above zero"),
        ({"message_bytes": -1}, "--size -1 has to be above zero"),
        ({"peak_per_s": 5}, "--peak 5 is below the average of the day, 11,574 a second"),
        ({"replicas": 0}, "--replicas 0 is too few"),
        ({"readers": -1}, "--readers -1 is below zero"),
        ({"compression": 0.5}, "--compression 0.5 is below 1"),
        ({"compression": float("nan")}, "--compression nan is below 1"),
    ],
)
def test_a_load_that_cannot_be_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Load(**wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cores": 1}, "--cores 1 is less than the 2"),
        ({"disk_bytes": 0}, "--disk 0"),
        ({"headroom": 1.0}, "--headroom 1.0 has to be a part of 1"),
        ({"disk_fill_max": 0}, "--disk-fill 0"),
        ({"spare": -1}, "--spare -1"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Machine(**wrong)


# Figures.


def results(quick: bool, reports: list[dict[str, object]], *, cores: int = 1) -> str:
    machine = {"cores": str(cores)}
    return json.dumps({"began": "2026-01-01T00:00:00", "quick": quick, "machine": machine, "reports": reports})


def throughput(rate: float) -> dict[str, object]:
    lines = [
        {"size_bytes": 1024, "work": "produce, fsync", "messages_per_s": rate},
        {"size_bytes": 100, "work": "produce, fsync", "messages_per_s": 1.0},
        {"size_bytes": 1024, "work": "produce, memory", "messages_per_s": 2.0},
    ]
    return {"name": "throughput", "figures": {"lines": lines}}


def test_the_newest_full_run_of_a_benchmark_counts(tmp_path: Path) -> None:
    queues: dict[str, object] = {
        "name": "queues",
        "figures": [{"door": "REST", "batch": 10, "work": "send", "messages_per_s": 7.0}],
    }
    (tmp_path / "1.json").write_text(results(False, [throughput(10.0), queues]))
    (tmp_path / "2.json").write_text(results(False, [throughput(20.0), {"name": "open", "figures": None}]))
    (tmp_path / "3.json").write_text(results(True, [throughput(30.0)]))
    (tmp_path / "4.json").write_text("{torn")
    spark: dict[str, object] = {
        "name": "spark",
        "figures": {"rows": 600, "seconds": {"stream_to_delta": [3.0, 1.0, 2.0], "other": [9.0]}},
    }
    (tmp_path / "5.json").write_text(results(False, [spark], cores=4))
    found = benchmarked(tmp_path, 10)
    assert found.pop("archive").value == 600 / 2 / 4
    assert {name: one.value for name, one in found.items()} == {"produce": 20.0, "partition": 20.0, "send": 7.0}
    assert found["produce"].source == "benchmark throughput, 2.json"
    assert "send" not in benchmarked(tmp_path, 100)
    with pytest.raises(OptionError, match="is no directory"):
        benchmarked(tmp_path / "absent", 10)


def test_a_directory_without_a_full_run_is_no_source_of_figures(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(results(True, [throughput(30.0)]))
    (tmp_path / "2.json").write_text("{torn")
    with pytest.raises(OptionError, match=f"--bench {tmp_path} has no results of a full run"):
        benchmarked(tmp_path, 10)


def test_what_a_person_gives_comes_before_what_was_measured() -> None:
    given, measured = Figure("send", 1.0, "given"), Figure("send", 2.0, "measured")
    assert chosen({"send": given}, {"send": measured}, shipped(10))["send"] is given
    assert chosen({}, {"send": measured}, shipped(10))["send"] is measured


def test_a_node_is_measured_by_its_own_cpu_and_left_as_it_was(node: NodeProcess, tmp_path: Path) -> None:
    wanted = Measurement(server=node.server, http=node.http, message_bytes=1_000, batch=10, seconds=0.2)
    summary = summary_of(CapacityOptions(measurement=wanted), tmp_path)
    for name in ("produce", "consume", "partition", "send", "receive", "acknowledge", "record_overhead"):
        assert "measured now" in str(summary.figures[f"figure {name}"])
    with Client(node.http) as client:
        assert [name for name in client.queues() if name.startswith("headrace.capacity")] == []


def test_a_node_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    wanted = Measurement(server="127.0.0.1:1", http="127.0.0.1:1", message_bytes=10, batch=1, seconds=0.1)
    with pytest.raises(UnreachableError):
        summary_of(CapacityOptions(measurement=wanted), tmp_path)
