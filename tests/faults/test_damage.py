"""Files of a stopped node are deleted, cut, emptied and changed: nothing is lost, or the node says what is missing.

The test knows no file format. It takes every kind of file that it finds in the data directory of a node that was killed
and of one that was stopped, harms one file of that kind in a copy, starts a node there and looks as a client does.
A start may heal the harm, refuse with the file's name, or serve the rest and be unhealthy, with a reason. It may not
lose in silence. A newest segment above its last checkpoint may end anywhere after a crash, so harm to it shows only by
the journal, which has what was appended behind the missing part. The load's appends are small enough for the journal.

The short form deletes one file of each kind. HEADRACE_LONG=1 harms all of them in every way.
"""

import json
import os
import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3
from tests.faults.history import History
from tests.faults.mixed import SMALL, MixedLoad, address, judge
from tests.support.node import START_DEADLINE_S, NodeProcess, running
from tests.support.wait import wait_until

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
PROGRESS = 1500
LEFT = 50


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    """Change one byte: of what is written where the rest was only reserved."""
    data = bytearray(path.read_bytes())
    written = len(data.rstrip(b"\\0")) or len(data)
    data[written // 2] ^= 0xFF
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


HARMS: tuple[Callable[[Path], None], ...] = (delete, empty, cut, flip, zero)


class Case(NamedTuple):
    image: str
    kind: str
    file: Path  # below the data directory
    harm: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.harm.__name__} {self.file} ({self.image})"


class Images(NamedTuple):
    """Copies of one node's data directory, and what its clients know."""

    killed: Path
    stopped: Path
    history: History


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    top = tmp_path_factory.mktemp("images")
    http = address()
    with running(top / "data", settings=SMALL, arguments=["--http", http]) as node:
        load = MixedLoad(node, http, seed=SEED)
        load.start()
        try:
            load.wait_progress(PROGRESS)
        finally:
            load.stop()
        load.leave_messages(LEFT)
        node.kill()
        shutil.copytree(node.data, top / "killed")
        node.start()
        assert node.stop() == 0, node.log_text()
        shutil.copytree(node.data, top / "stopped")
    return Images(top / "killed", top / "stopped", load.history)


def kind_of(file: Path) -> str:
    """A file's name without what tells it from others of its kind."""
    return re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "*", str(file))


def cases(images: Images) -> Iterator[Case]:
    """Of each kind the first, the last and the largest file that has something in it."""
    for image in ("killed", "stopped"):
        top: Path = getattr(images, image)
        by_kind: dict[str, list[Path]] = defaultdict(list)
        for file in sorted(top.rglob("*")):
            if file.is_file() and file.stat().st_size:
                by_kind[kind_of(file.relative_to(top))].append(file)
        for kind, files in by_kind.items():
            chosen = {files[0], files[-1], max(files, key=lambda file: file.stat().st_size)}
            for file in sorted(chosen):
                for harm in HARMS:
                    yield Case(image, kind, file.relative_to(top), harm)


def choose(all_cases: list[Case]) -> list[Case]:
    """All of them; or, in the short form, the deletion of one file of each kind."""
    if IS_LONG:
        return all_cases
    chance = random.Random(SEED)
    chance.shuffle(all_cases)
    return list({case.kind: case for case in all_cases if case.harm is delete}.values())


def health(http: str) -> Any:
    answer = urllib3.request("GET", f"http://{http}/health", retries=False, timeout=10.0)
    return json.loads(answer.data)


def outcome_of(case: Case, images: Images, directory: Path) -> str:
    """How a node that starts on the harmed copy ends up: `healed`, `refused`, `reported`; anything else is wrong."""
    data = directory / "data"
    shutil.copytree(getattr(images, case.image), data)
    case.harm(data / case.file)
    http = address()
    node = NodeProcess(data, settings=SMALL, arguments=["--http", http])
    try:
        node.launch()
        wait_until(
            lambda: node.is_ready() or node.exit_code() is not None,
            deadline_s=START_DEADLINE_S,
            what="a start, or a refusal",
        )
        if node.exit_code() is not None:
            named = case.file.name in node.log_text() or case.file.parent.name in node.log_text()
            return "refused" if named and "Traceback" not in node.log_text() else f"refused badly: {node.log_text()}"
        try:
            verdict = judge(
                images.history.fork(), node.server, http, is_hopeless=lambda: health(http)["status"] != "ok"
            )
        except AssertionError as error:
            return f"not served, and not reported: {error}"
        said = health(http)
        if said["status"] != "ok":
            return "reported" if said["reasons"] else "unhealthy without a reason"
        return f"lost in silence: {verdict}" if verdict.violations else "healed"
    finally:
        node.clean_up()


@pytest.mark.timeout(7200 if IS_LONG else 300)
def test_a_harmed_file_is_healed_or_reported_and_never_lost_in_silence(images: Images, tmp_path: Path) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    found: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    for number, case in enumerate(choose(list(cases(images)))):
        directory = tmp_path / str(number)
        directory.mkdir()
        outcome = outcome_of(case, images, directory)
        found[case.kind][f"{case.harm.__name__} {outcome.partition(':')[0]}"] += 1
        if outcome not in ("healed", "refused", "reported"):
            wrong.append(f"{case}: {outcome}")
        shutil.rmtree(directory)
    for kind, outcomes in sorted(found.items()):
        print(f"{kind}: " + ", ".join(f"{count} x {outcome}" for outcome, count in sorted(outcomes.items())))
    assert not wrong, "\n".join(wrong)
