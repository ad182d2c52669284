"""The runs that a state directory knows: look them up, ask one to end, forget one."""

import shutil
from pathlib import Path

from headrace.host.other_process import ask_to_end
from headrace.host.process import DirectoryLock
from headrace.spark.pipeline.errors import RunInProgressError, UnknownRunError
from headrace.spark.pipeline.place import LOCK_NAME
from headrace.spark.pipeline.record import Condition, RunRecord, read_record


def all_runs(state: Path) -> list[RunRecord]:
    """Newest first."""
    if not state.is_dir():
        return []
    found = (read_record(directory) for directory in state.iterdir())
    return sorted((record for record in found if record is not None), key=lambda record: -record.started_ms)


def find_run(state: Path, id: str) -> RunRecord:
    record = read_record(state / id) if "/" not in id and id not in ("", ".", "..") else None
    if record is None:
        raise UnknownRunError(f"there is no run {id} in {state}; `headrace pipeline list` shows those that there are")
    return record


def ask_run_to_end(state: Path, id: str) -> RunRecord:
    """It ends after its batch. Refused where it does not run."""
    record = find_run(state, id)
    if record.condition != "running" or not ask_to_end(record.pid, record.birth):
        raise UnknownRunError(f"{id} does not run; {told(find_run(state, id).condition)}")
    return record


def told(condition: Condition) -> str:
    """A condition as a clause about a run."""
    return "it died" if condition == "died" else f"it is {condition}"


def forget_run(state: Path, id: str) -> RunRecord:
    """Its record and its checkpoints: the next run of its name begins anew."""
    record = find_run(state, id)
    lock = DirectoryLock(str(state / id / LOCK_NAME))
    try:
        if not lock.try_lock():
            raise RunInProgressError(f"{id} runs as process {record.pid}; stop it first")
        shutil.rmtree(state / id)
    finally:
        lock.release()
    return record
