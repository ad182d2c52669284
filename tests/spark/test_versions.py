"""Source and sinks with every PySpark that `headrace[spark]` takes, each in a directory that is thrown away."""

import subprocess
import sys
from collections import Counter
from importlib.metadata import requires
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.spark.killed_driver import LONG, driving
from tests.spark.source_data import create, produce
from tests.spark.topic_sink import values
from tests.spark.version_driver import COUNT
from tests.support.node import NodeProcess

_INSTALL_DEADLINE_S = 900.0


def pip(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        timeout=_INSTALL_DEADLINE_S,
        check=False,
    )
    if ended.returncode:
        pytest.skip(f"NOT TESTED with other versions of PySpark: {ended.stderr.strip().splitlines()[-1]}")
    return ended.stdout


def others() -> list[str]:
    """The versions that there are in the range of the extra `spark`, without the one that is installed."""
    wanted = [one for text in requires("headrace") or [] if (one := Requirement(text)).name == "pyspark"]
    (pinned,) = {one.specifier for one in wanted if one.marker and one.marker.evaluate({"extra": "spark"})}
    said = pip("index", "versions", "pyspark")
    line = next(line for line in said.splitlines() if line.startswith("Available versions:"))
    found = line.removeprefix("Available versions:").replace(" ", "").split(",")
    return [one for one in found if one in pinned and Version(one) != Version(pyspark.__version__)]


@pytest.mark.timeout(1_800)
@pytest.mark.skipif(not LONG, reason="NOT TESTED with other versions of PySpark: HEADRACE_LONG=1 does so")
def test_every_version_in_the_range_reads_and_writes_once(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    versions = others()
    assert versions, "the range has one version only"
    create(node, topic, partitions=2)
    for partition in range(2):
        produce(node, topic, [f"{partition}-{number}" for number in range(COUNT // 2)], partition=partition)
    sent = Counter(f"{partition}-{number}" for partition in range(2) for number in range(COUNT // 2))
    for version in versions:
        place, target = tmp_path / version, f"{topic}-{version}"
        pip("install", "--quiet", "--no-deps", "--target", str(place / "site"), f"pyspark=={version}")
        create(node, target)
        create(node, f"{target}-again")
        arguments = [version, node.server, topic, target, place]
        variables = {"PYTHONPATH": str(place / "site"), "SPARK_HOME": str(place / "site" / "pyspark")}
        with driving("tests.spark.version_driver", arguments, log=tmp_path / "log", variables=variables) as driver:
            driver.wait_end()
        assert values(node, target) == sent + sent, "the stream's, and the job's"
        assert values(node, f"{target}-again") == sent
        print(f"PySpark {version}: source and sinks read and wrote {COUNT} messages, each once")
