"""Every code block of every document works as it stands, one after the other, against a fresh node.

Those of Spark are followed in tests/spark/test_documents.py, where there is a session for them.
"""

import re
from pathlib import Path

import pytest
from tests.support.document import PAGES, ROOT, blocks_of, indented_blocks, reading

SPARK_PAGES = {"README.md", "docs/spark.md", "docs/pipelines.md"}
NOT_RUN_MAX = 12
# `orders` is the topic of all examples and `tasks` their queue, so that a reader can follow one after the other.
TOPIC_AS_QUEUE = re.compile(
    r"(queues/|--queue[ =]|headrace (send|receive) |queue\([\"']|worker\([\"']|QueueName=[\"']"
    r"|queue (create|update|describe|browse|explain|purge|delete|redrive|readers) )orders\b"
)
QUEUE_AS_TOPIC = re.compile(
    r"(--topics?[ =]|headrace (produce|consume) |topic (create|describe|alter|delete) |-t |subscribe[\"'], [\"'])"
    r"tasks\b"
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in SPARK_PAGES], ids=name_of)
@pytest.mark.timeout(1200)
def test_every_block_of_a_document_works_as_written(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    if not blocks:
        pytest.skip("it has no code block")
    (tmp_path / "here").mkdir()
    with reading(tmp_path) as reader:
        for block in blocks:
            reader.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page: Path) -> None:
    assert indented_blocks(page) == []
    assert [str(block) for block in blocks_of(page) if not block.language] == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in PAGES for block in blocks_of(page) if block.word == "not run"]
    assert len(left_out) <= NOT_RUN_MAX
    assert all(len(block.rest.split()) >= 4 for block in left_out)


def test_the_pages_that_are_followed_with_spark_are_there() -> None:
    assert {name_of(page) for page in PAGES} >= SPARK_PAGES


@pytest.mark.parametrize("pattern", [TOPIC_AS_QUEUE, QUEUE_AS_TOPIC], ids=["orders is a topic", "tasks is a queue"])
def test_examples_have_one_name_for_queues_and_another_for_streams(pattern: re.Pattern[str]) -> None:
    texts = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    assert [f"{name_of(text)}: {found[0]}" for text in texts for found in pattern.finditer(text.read_text())] == []
