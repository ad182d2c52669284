"""System calls of a node under a mixed load fail or take long, by strace (failure rows 15, 22 to 25).

The node stays up whatever fails. What it could not do it did not acknowledge: after a restart its clients miss nothing.
Where it stopped serving something, its health says so and names the error. HEADRACE_LONG=1 has more calls fail.
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3
from tests.faults.mixed import SMALL, MixedLoad, address
from tests.support.node import running
from tests.support.strace import injected

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
UNDER_FAULT_S = 20.0 if IS_LONG else 2.0


class Fault(NamedTuple):
    calls: str
    what: str  # in strace's words
    said: str  # what the node's health says where it stopped serving something

    def __str__(self) -> str:
        return f"{self.calls}-{self.what}"


BROKEN, FULL = "Input/output error", "No space left"
SHORT = [
    Fault("pwritev2", "error=EIO:when=3+7", BROKEN),
    Fault("fdatasync,fsync", "error=EIO:when=3+7", BROKEN),
    Fault("pwritev2,pwrite64,fallocate", "error=ENOSPC:when=3+5", FULL),
    Fault("openat", "error=EMFILE:when=2+3", "Too many open files"),
    Fault("preadv2,pread64", "error=EIO:when=3+7", BROKEN),
]
LONG = [
    Fault("pwritev2", "error=EIO:when=1", BROKEN),
    Fault("fdatasync", "error=EIO:when=1", BROKEN),
    Fault("fsync", "error=EIO:when=2+2", BROKEN),
    Fault("rename,renameat,renameat2", "error=EIO:when=1+2", BROKEN),
    Fault("rename,renameat,renameat2", "error=EACCES:when=1+2", "Permission denied"),
    Fault("unlink,unlinkat", "error=EIO:when=1+2", BROKEN),
    Fault("ftruncate", "error=EIO:when=1+3", BROKEN),
    Fault("fallocate", "error=EOPNOTSUPP", "Operation not supported"),
    Fault("fallocate", "error=ENOSPC:when=1+2", FULL),
    Fault("statfs,fstatfs", "error=EIO", BROKEN),
    Fault("getdents64", "error=EIO:when=1+2", BROKEN),
    Fault("mkdir,mkdirat", "error=ENOSPC:when=1+2", FULL),
    Fault("openat", "error=ENFILE:when=1+2", "Too many open files in system"),
    Fault("accept4", "error=EMFILE:when=1+2", "Too many open files"),
    Fault("pwritev2,fdatasync", "error=EINTR:when=2+3", "Interrupted"),
    Fault("preadv2", "error=EAGAIN:when=1+2", "unavailable"),
    Fault("pwritev2,pwrite64", "error=EDQUOT:when=3+5", "quota"),
    Fault("pwritev2", "delay_enter=700000:when=2+5", "slow"),
    Fault("fdatasync,fsync", "delay_enter=700000:when=2+5", "slow"),
]
FAULTS = SHORT + LONG if IS_LONG else SHORT


def health(http: str) -> Any:
    return json.loads(urllib3.request("GET", f"http://{http}/health", retries=False, timeout=10.0).data)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.timeout(600 if IS_LONG else 240)
def test_a_system_call_that_fails_costs_no_client_what_was_acknowledged(fault: Fault, tmp_path: Path) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    http = address()
    with running(tmp_path / "data", settings=SMALL, arguments=["--http", http]) as node:
        load = MixedLoad(node, http, seed=SEED)
        load.start()
        try:
            load.wait_progress(100)
            with injected(node.pid, fault.calls, fault.what, tmp_path / "trace"):
                time.sleep(UNDER_FAULT_S)  # how long the fault lasts, not a synchronisation
            assert node.exit_code() is None, f"the node ended:\n{node.log_text()[-3000:]}"
            injected_count = (tmp_path / "trace").read_text().count("INJECTED")
            after = health(http)
            if after["status"] != "ok":
                assert fault.said in json.dumps(after), after
                assert node.stop() == 0, node.log_text()[-3000:]
                node.start()
            load.wait_progress(100)
        finally:
            load.stop()
        verdict = load.verdict()
        assert "Traceback" not in node.log_text(), node.log_text()[-3000:]
        reasons = [reason["code"] for reason in after.get("reasons", [])]
        print(f"{fault}: {injected_count} calls; then {after['status']} {reasons}\n{verdict}")
        assert injected_count > 0
        assert not verdict.violations, str(verdict)
