"""Where runs keep what they must find again: DIR/ID with a record, a lock, Spark's log and the checkpoints.

A run's id follows from what the pipeline is and works on, so the same command given again is the same run and goes on
from its checkpoint. A person may name it instead.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from headrace.spark.errors import OptionError

STATE_VARIABLE = "HEADRACE_STATE"
LOCK_NAME = "lock"
LOG_NAME = "spark.log"
CHECKPOINT_NAME = "checkpoint"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGITS = 8


def default_state(environment: Mapping[str, str] | None = None) -> Path:
    """Where state is kept unless a person says otherwise: HEADRACE_STATE, or the place that XDG gives to state."""
    given = os.environ if environment is None else environment
    if given.get(STATE_VARIABLE):
        return Path(given[STATE_VARIABLE])
    base = given.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "headrace" / "pipelines"


def run_id(pipeline: str, identity: Mapping[str, str]) -> str:
    """The same for the same work, and another for any other."""
    text = json.dumps([pipeline, sorted(identity.items())], ensure_ascii=False)
    return f"{pipeline}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def check_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise OptionError(f"--id {text!r} is no name for a run; use up to 100 letters, digits, dots, - and _")
    return text
