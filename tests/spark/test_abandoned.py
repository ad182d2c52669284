"""Rows that are not wanted any more: the worker that has them ends without a word."""

import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from tests.spark.source_data import create, produce
from tests.support.node import NodeProcess, environment

from headrace.spark.abandoned import is_hang_up

_DEADLINE_S = 240.0
_SCRIPT = """
import sys
from headrace import spark

session = spark.session(master="local[2]")
large, small = [
    session.read.format("headrace").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", topic).load()
    for topic in sys.argv[2:]
]
for _ in range(3):
    large.show(3)
    small.show(2)
    large.mapInArrow(lambda batches: batches, large.schema).limit(2).collect()
session.stop()
"""


def test_show_and_limit_print_no_stack(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    for name, count in ((topic, 200_000), (f"{topic}-small", 5)):
        create(node, name)
        produce(node, name, map(str, range(count)))
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT, node.server, topic, f"{topic}-small"],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        env=environment({}),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("only showing top") == 6
    assert "Traceback" not in ended.stderr, ended.stderr


def raised(error: Exception, module: str) -> BaseException:
    """The error as it comes out of a function of a module."""
    names = types.ModuleType(module).__dict__ | {"error": error, "__spec__": ModuleSpec(module, None)}
    exec("def work():\n    raise error", names)
    with pytest.raises(type(error)) as caught:
        names["work"]()
    return caught.value


def test_nothing_but_the_daemon_s_broken_pipe_is_left_out() -> None:
    assert is_hang_up(raised(BrokenPipeError(), "pyspark.daemon"))
    assert not is_hang_up(raised(BrokenPipeError(), "somebodys.function"))
    assert not is_hang_up(raised(ValueError(), "pyspark.daemon"))
    assert not is_hang_up(None)
