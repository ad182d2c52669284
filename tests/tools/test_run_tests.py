"""The program behind `make test`, with small scripts in the place of pytest."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.wait import wait_until

DEADLINE_S = 60.0
PROGRAM = Path(__file__).parents[2] / "tools" / "run_tests.py"
HALVES = ("spark", "rest")

# What the program starts as pytest: a script for each of the halves, known by the argument that Spark's comes with.
PYTEST = """
import runpy, sys
runpy.run_path("spark.py" if sys.argv[1:] == ["tests/spark"] else "rest.py", run_name="__main__")
"""

# Starts the program as a shell does: in the background SIGINT is ignored.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.Handlers[sys.argv[1]])
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""

PASSES = 'print("HALF was here")'
FAILS = 'print("HALF was here"); raise SystemExit(1)'

# A second SIGINT, if there was one, would break its cleaning up off.
CLEANS_UP = """
import signal, time
from pathlib import Path

try:
    Path("HALF.begun").touch()
    signal.pause()
except KeyboardInterrupt:
    Path("HALF.cleaning").touch()
    while not Path("may-end").exists():
        time.sleep(0.01)
    Path("HALF.cleaned").touch()
    raise SystemExit(2)
"""

# A child of its group holds a lock for as long as it is there.
LEAVES_A_CHILD = """
import fcntl, subprocess, sys

lock = open("HALF.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[lock.fileno()])
"""

IGNORES = f"""
import signal
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_IGN)
{LEAVES_A_CHILD}
Path("HALF.begun").touch()
while True:
    signal.pause()
"""


@contextmanager
def running(
    directory: Path, *, spark: str, rest: str, grace_s: float = DEADLINE_S, is_in_background: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """The program with these scripts as its halves."""
    for half, script in zip(HALVES, (spark, rest), strict=True):
        (directory / f"{half}.py").write_text(script.replace("HALF", half))
    (directory / "pytest.py").write_text(PYTEST)
    on_interrupt = signal.SIG_IGN if is_in_background else signal.SIG_DFL
    start = [sys.executable, "-c", START, on_interrupt.name]
    command = [*start, str(PROGRAM), "--grace-s", str(grace_s), sys.executable, "pytest.py"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            yield program
        finally:
            if program.poll() is None:  # a test has failed: the program ends its halves
                program.terminate()
                (directory / "may-end").touch()


def output_of(program: subprocess.Popen[str]) -> list[str]:
    """All that it says until it ends."""
    return program.communicate(timeout=DEADLINE_S)[0].splitlines()


def wait_for_both(directory: Path, what: str) -> None:
    for half in HALVES:
        wait_until((directory / f"{half}.{what}").exists, deadline_s=DEADLINE_S, what=f"{half} has {what}")


def is_unlocked(path: Path) -> bool:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_for_no_child(directory: Path, half: str) -> None:
    path = directory / f"{half}.lock"
    wait_until(lambda: is_unlocked(path), deadline_s=DEADLINE_S, what=f"no child of {half} is left")


def test_when_both_halves_pass_sparks_report_comes_last_and_the_code_is_zero(tmp_path: Path) -> None:
    with running(tmp_path, spark=PASSES, rest=PASSES) as program:
        said = output_of(program)
    assert said[-4:] == ["rest was here", "tests/spark:", "spark was here", "both halves passed"]
    assert program.returncode == 0


@pytest.mark.parametrize(
    ("spark", "rest", "verdict"),
    [
        (FAILS, PASSES, "failed: tests/spark (exit code 1)"),
        (PASSES, FAILS, "failed: all other tests (exit code 1)"),
        (FAILS, FAILS, "failed: tests/spark (exit code 1), all other tests (exit code 1)"),
    ],
    ids=["spark", "rest", "both"],
)
def test_a_half_that_fails_is_named_and_the_other_is_still_reported(
    tmp_path: Path, spark: str, rest: str, verdict: str
) -> None:
    with running(tmp_path, spark=spark, rest=rest) as program:
        said = output_of(program)
    assert said[-4:] == ["rest was here", "tests/spark:", "spark was here", verdict]
    assert program.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_an_interrupt_lets_both_halves_clean_up(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, spark=CLEANS_UP, rest=CLEANS_UP) as program:
        wait_for_both(tmp_path, "begun")
        os.killpg(program.pid, number)  # as a terminal does
        wait_for_both(tmp_path, "cleaning")
        (tmp_path / "may-end").touch()
        said = output_of(program)
    wait_for_both(tmp_path, "cleaned")
    assert said[-1] == "interrupted"
    assert program.returncode == 130


def test_more_interrupts_do_not_break_the_cleaning_up_off(tmp_path: Path) -> None:
    with running(tmp_path, spark=CLEANS_UP, rest=CLEANS_UP) as program:
        wait_for_both(tmp_path, "begun")
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.killpg(program.pid, number)
            wait_for_both(tmp_path, "cleaning")
        (tmp_path / "may-end").touch()
        said = output_of(program)
    wait_for_both(tmp_path, "cleaned")
    assert said[-1] == "interrupted"


def test_a_run_in_the_background_is_left_alone_by_ctrl_c_and_cleans_up_when_it_is_terminated(tmp_path: Path) -> None:
    with running(tmp_path, spark=CLEANS_UP, rest=CLEANS_UP, is_in_background=True) as program:
        wait_for_both(tmp_path, "begun")
        program.send_signal(signal.SIGINT)
        program.terminate()
        wait_for_both(tmp_path, "cleaning")
        (tmp_path / "may-end").touch()
        output_of(program)
    wait_for_both(tmp_path, "cleaned")
    assert program.returncode == 130


def test_a_half_that_ignores_the_interrupt_is_killed_with_all_of_its_group(tmp_path: Path) -> None:
    with running(tmp_path, spark=IGNORES, rest=IGNORES, grace_s=0.1) as program:
        wait_for_both(tmp_path, "begun")
        program.send_signal(signal.SIGINT)
        said = output_of(program)
    for half in HALVES:
        wait_for_no_child(tmp_path, half)
    assert said[-1] == "interrupted; killed, for it did not end: tests/spark, all other tests"
    assert program.returncode == 130


def test_what_a_half_leaves_behind_is_killed_when_it_ends(tmp_path: Path) -> None:
    with running(tmp_path, spark=LEAVES_A_CHILD, rest=PASSES) as program:
        said = output_of(program)
    wait_for_no_child(tmp_path, "spark")
    assert said[-1] == "both halves passed"
