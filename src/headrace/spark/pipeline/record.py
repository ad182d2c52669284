"""The record of a run: one JSON file, replaced as a whole, by which `list`, `status` and `stop` know of it.

A record says `running` until its process says how it ended. A process that is killed cannot say so; then the record
still reads `running` while the process that it names is gone, and that is what `died` means.
"""

from pathlib import Path
from typing import Literal

import msgspec

from headrace.host.other_process import is_alive
from headrace.host.whole_file import replace_file

State = Literal["running", "done", "stopped", "failed"]
Condition = Literal["running", "done", "stopped", "failed", "died"]

RECORD_NAME = "run.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    pipeline: str
    identity: dict[str, str]  # what makes it the same job again
    is_continuous: bool
    checkpoint: str
    state: State
    pid: int
    birth: str  # of the process, see host.other_process
    run_count: int  # how often it was started
    started_ms: int
    ended_ms: int | None = None
    # As of the last look, of this start.
    rows: int = 0
    batches: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None  # messages; None where nothing says it
    failure: str | None = None

    @property
    def condition(self) -> Condition:
        if self.state == "running" and not is_alive(self.pid, self.birth):
            return "died"
        return self.state


def write_record(directory: Path, record: RunRecord) -> None:
    replace_file(directory / RECORD_NAME, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def read_record(directory: Path) -> RunRecord | None:
    """None where there is none, or one that this version cannot read."""
    try:
        return msgspec.json.decode((directory / RECORD_NAME).read_bytes(), type=RunRecord)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
