"""The documents' code blocks, and a reader who follows them one after the other with a node of their own.

A comment right before a block says what a reader understands from the text:

    <!-- file: NAME -->        the block is what that file contains; later blocks find it in their directory
    <!-- stop at: TEXT -->     the block goes on until Ctrl-C, which the reader presses once it has printed the text
    <!-- not run: REASON -->   the block cannot be followed on a test's machine

Addresses are those of a node with its default ports, for which the reader's node stands in.
"""

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml
from tests.cli.running import HEADRACE, RunningNode, clean_environment, running_node
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "src/headrace/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
DEADLINE_S = 240.0

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_WORDS = re.compile(r"<!-- (?P<word>file|stop at|not run): (?P<rest>[^\n]+?) -->\s*\Z")
_LOCAL = r"(?:127\.0\.0\.1|localhost)"


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    word: str = ""  # of the comment before it
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}, line {self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        words = _WORDS.search(text[: fence.start()])
        indent = fence["indent"]
        lines = [line.removeprefix(indent) for line in fence["text"].splitlines()]
        found.append(
            Block(
                page,
                text[: fence.start()].count("\n") + 1,
                fence["language"],
                "\n".join(lines) + "\n",
                *((words["word"], words["rest"]) if words else ()),
            )
        )
    return found


def indented_blocks(page: Path) -> list[int]:
    """Lines that Markdown shows as code without a fence, whose language nothing says."""
    found, fenced, listed, before = [], False, False, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            listed = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (listed and line.startswith(" "))
            if line.startswith("    ") and not before.strip() and not listed:
                found.append(number)
        before = line
    return found


class Reader:
    """Follows the blocks of one document in a directory of its own."""

    def __init__(self, node: RunningNode, place: Path) -> None:
        self.node = node
        self.place = place
        place.mkdir(exist_ok=True)
        ready = node.ready
        self._addresses = {9092: node.server, 8080: ready["http"], 8081: ready["admin"]}
        # `headrace` is this clone's, whichever is installed.
        programs = place.parent / "programs"
        programs.mkdir(exist_ok=True)
        command = " ".join(f"'{word}'" for word in HEADRACE)
        (programs / "headrace").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / "headrace").chmod(0o755)
        (programs / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        self.environment = clean_environment() | {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HEADRACE_SERVER": node.server,
            "HEADRACE_HTTP": ready["http"],
            "HEADRACE_ADMIN": ready["admin"],
            "HEADRACE_STATE": str(place.parent / "state"),
            "COLUMNS": "200",
            # A refusal fails a block, which curl alone would print and pass over.
            "CURL_HOME": str(programs),
        }

    def follow(self, block: Block) -> None:
        assert block.language in _LANGUAGES, f"{block}: no reader knows the language {block.language!r}"
        if block.word == "not run" or block.language == "text":
            return
        block = block._replace(text=self._here(block.text))
        if block.word == "file":
            (self.place / block.rest).write_text(block.text)
        if block.language in _CHECKS:
            _CHECKS[block.language](block)
        elif block.word == "file":
            compile(block.text, block.rest, "exec")
        else:
            self._run(block)

    def _here(self, text: str) -> str:
        for port, address in self._addresses.items():
            text = re.sub(rf"{_LOCAL}:{port}\b", address, text)
        return text

    def _run(self, block: Block) -> None:
        command = (
            [sys.executable, "-W", "error", "-c", block.text]
            if block.language == "python"
            else ["bash", "-euo", "pipefail", "-c", block.text]
        )
        said = self.place.parent / "said"
        with said.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                if block.word == "stop at":
                    self._stop_at(block, process, said)
                else:
                    process.wait(DEADLINE_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        text = said.read_text(errors="replace")
        # Programs that are not headrace's end at Ctrl-C with codes of their own.
        is_foreign = block.word == "stop at" and "headrace" not in block.text
        stopped = (0, 130, -signal.SIGINT) if block.word == "stop at" else (0,)
        assert is_foreign or process.returncode in stopped, (
            f"{block}: exit code {process.returncode}\n{block.text}\n{text[-4000:]}"
        )
        assert "Traceback (most recent call last)" not in text, f"{block}:\n{text[-4000:]}"

    def _stop_at(self, block: Block, process: "subprocess.Popen[bytes]", said: Path) -> None:
        def reached() -> bool:
            return block.rest in said.read_text(errors="replace") or process.poll() is not None

        wait_until(
            reached, deadline_s=DEADLINE_S, what=lambda: f"{block} prints {block.rest}; so far {said.read_text()}"
        )
        assert process.poll() is None, f"{block} ended with {process.returncode} by itself:\n{said.read_text()}"
        os.killpg(process.pid, signal.SIGINT)
        process.wait(DEADLINE_S)


def _check_scraping(block: Block) -> None:
    """A configuration of Prometheus: each target has metrics."""
    for job in yaml.safe_load(block.text)["scrape_configs"]:
        for target in (target for config in job["static_configs"] for target in config["targets"]):
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=DEADLINE_S) as answer:
                assert b"headrace_info" in answer.read()


def _check_toml(block: Block) -> None:
    tomllib.loads(block.text)


def _check_json(block: Block) -> None:
    json.loads(block.text)


def _check_ini(block: Block) -> None:
    configparser.ConfigParser(interpolation=None).read_string(block.text)


_CHECKS = {"toml": _check_toml, "json": _check_json, "yaml": _check_scraping, "ini": _check_ini}
_LANGUAGES = frozenset({"sh", "python", "text", *_CHECKS})


@contextmanager
def reading(place: Path, kind: type[Reader] = Reader) -> Iterator[Reader]:
    """A reader with a fresh node, whose data are where `headrace up` puts them."""
    with running_node(place / "here" / "data") as node:
        yield kind(node, place / "here")
