"""`headrace log dump` and `headrace log verify` over segment files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.host.disk import SystemDisk
from headrace.log.compacted import Compacted, save_compacted
from headrace.wire.kafka.records import Record, encode_batch

runner = CliRunner()


def batch(base_offset: int, *texts: str, codec: int = 0) -> bytes:
    records = [Record(1_700_000_000_000 + index, b"key", text.encode()) for index, text in enumerate(texts)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=3, codec=codec))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "partitions" / "some-topic-0" / "00000000000000000005.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(batch(5, "one", "two") + batch(7, "three", codec=4) + batch(8, "four"))
    return path


def test_dump_shows_each_batch(segment: Path) -> None:
    result = runner.invoke(app, ["log", "dump", str(segment)])
    assert result.exit_code == 0, result.output
    assert "5-6" in result.stdout
    assert "zstd" in result.stdout
    assert "8-8" in result.stdout


def test_dump_shows_messages_where_asked(segment: Path) -> None:
    result = runner.invoke(app, ["log", "dump", str(segment), "--records"])
    assert "key = three" in result.stdout


def test_dump_gives_json_a_line_for_each_batch(segment: Path) -> None:
    result = runner.invoke(app, ["log", "dump", str(segment.parent.parent), "--records", "--json"])
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(b["base_offset"], b["last_offset"], b["leader_epoch"]) for b in batches] == [
        (5, 6, 3),
        (7, 7, 3),
        (8, 8, 3),
    ]
    assert [r["value"] for b in batches for r in b["records"]] == ["one", "two", "three", "four"]
    assert batches[1]["position"] == batches[0]["size"]


def test_verify_finds_an_intact_directory_intact(segment: Path) -> None:
    result = runner.invoke(app, ["log", "verify", str(segment.parent.parent), "--deep", "--json"])
    assert result.exit_code == 0
    (report,) = json.loads(result.stdout)
    assert (report["batches"], report["messages"], report["error"]) == (3, 4, None)


def test_verify_finds_any_flipped_bit_and_says_where(segment: Path) -> None:
    whole = segment.read_bytes()
    second = len(batch(5, "one", "two"))
    # The leader epoch is the one field that nothing in the file vouches for.
    for position in [p for p in range(len(whole)) if not 12 <= (p if p < second else p - second) < 16][::3]:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        segment.write_bytes(damaged)
        result = runner.invoke(app, ["log", "verify", str(segment), "--json"])
        if result.exit_code == 0:
            # A later batch's leader epoch.
            assert second < position
            continue
        (report,) = json.loads(result.stdout)
        assert str(segment) in report["error"]
        assert {"position", "what", "expected", "found"} <= report["damage"].keys()


def test_verify_says_file_position_expected_and_found_to_people(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    result = runner.invoke(app, ["log", "verify", str(segment)])
    assert result.exit_code == 1
    assert "damaged" in result.stdout
    assert f"{segment} at position {len(data) - len(batch(8, 'four'))}: CRC-32C expected" in result.stderr
    assert ", found " in result.stderr
    assert "log verify" not in result.stderr


def test_verify_finds_a_torn_tail(segment: Path) -> None:
    data = segment.read_bytes()
    for cut in (1, 40, 65):
        segment.write_bytes(data[:-cut])
        assert runner.invoke(app, ["log", "verify", str(segment)]).exit_code == 1


def test_a_path_without_segments_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    result = runner.invoke(app, ["log", "verify", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no .log file under")
    assert runner.invoke(app, ["log", "dump", str(tmp_path / "absent")]).exit_code == 1


def test_verify_says_how_far_a_partition_is_compacted(segment: Path) -> None:
    save_compacted(SystemDisk(), str(segment.parent), Compacted(upto=7))
    (report,) = json.loads(runner.invoke(app, ["log", "verify", str(segment), "--json"]).stdout)
    assert report["compacted_upto"] == 7
    assert "compacted up to offset 7" in runner.invoke(app, ["log", "verify", str(segment)]).output
