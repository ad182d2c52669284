"""Every code block of the documents about Spark works as it stands, with one Spark session for each document."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tests.documents.test_documents import SPARK_PAGES
from tests.support.document import ROOT, Block, Reader, blocks_of, reading

# These start a Spark of their own, or none.
_ALONE = ("headrace pipeline run capacity", "headrace pipeline run shop")
_PIPELINE = "headrace pipeline run "


class SparkReader(Reader):
    """Gives blocks about Spark to one process, which keeps its session and its names."""

    kernel: "subprocess.Popen[str] | None" = None

    def _run(self, block: Block) -> None:
        if block.word == "stop at":
            super()._run(block)
        elif block.language == "python" and "spark" in block.page.name + block.text:
            self._ask(block, {"python": block.text})
        elif _PIPELINE in block.text:
            for line in block.text.splitlines():
                if line.startswith(_PIPELINE) and not line.startswith(_ALONE):
                    self._ask(block._replace(text=line), {"pipeline": shlex.split(line, comments=True)[1:]})
                else:
                    super()._run(block._replace(text=line))
        else:
            super()._run(block)

    def _ask(self, block: Block, request: object) -> None:
        if self.kernel is None:
            self.kernel = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("document_kernel.py")],
                cwd=self.place,
                env=self.environment | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        given, printed = self.kernel.stdin, self.kernel.stdout
        assert given is not None
        assert printed is not None
        given.write(json.dumps(request) + "\n")
        given.flush()
        code, said = _answer(printed)
        assert code == "0", f"{block}: exit code {code}\n{block.text}\n{said[-4000:]}"

    def close(self) -> None:
        if self.kernel is not None:
            assert self.kernel.stdin is not None
            assert self.kernel.stdout is not None
            self.kernel.stdin.close()
            try:
                self.kernel.wait(60)
            finally:
                self.kernel.kill()
                self.kernel.wait()
                self.kernel.stdout.close()


def _answer(printed: IO[str]) -> tuple[str, str]:
    said = ""
    for line in printed:
        before, mark, code = line.partition("\0")
        said += before
        if mark:
            return code.strip(), said
    return "none: the process ended", said


@contextmanager
def spark_reading(place: Path) -> Iterator[SparkReader]:
    with reading(place, SparkReader) as reader:
        assert isinstance(reader, SparkReader)
        try:
            yield reader
        finally:
            reader.close()


@pytest.mark.parametrize("page", sorted(SPARK_PAGES))
@pytest.mark.timeout(1800)
def test_every_block_of_a_document_works_as_written(page: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with spark_reading(tmp_path) as reader:
        for block in blocks_of(ROOT / page):
            reader.follow(block)
