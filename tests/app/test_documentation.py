"""What the configuration page shows is what a node takes."""

import re
from pathlib import Path

import msgspec

from headrace.app.config import known_paths, load
from headrace.broker.group.config import GroupsConfig
from headrace.broker.queue.config import QueuesConfig
from headrace.gateways.sqs.config import SqsConfig
from headrace.log.config import LogConfig
from headrace.model.topic_setting import CONFIG_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_example_file_is_valid(tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    file = tmp_path / "headrace.toml"
    file.write_text(block[1])
    loaded = load(file=str(file))
    assert {setting.path for setting in loaded.settings if setting.origin != "default"} <= set(known_paths())


def test_every_setting_of_the_log_of_queues_of_groups_and_of_topics_is_explained() -> None:
    text = PAGE.read_text()
    for config in (LogConfig, QueuesConfig, GroupsConfig):
        for field in msgspec.structs.fields(config):
            assert f"`{field.name}`" in text
    for key in CONFIG_KEYS:
        assert f"`{key}`" in text


def test_every_setting_of_sqs_is_explained() -> None:
    text = PAGE.read_text()
    for field in msgspec.structs.fields(SqsConfig):
        assert f"`{field.name}`" in text
