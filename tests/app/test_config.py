"""The node's configuration: precedence, origins, and the refusal of everything that cannot be obeyed."""

from pathlib import Path

import pytest

from headrace.app.config import NodeConfig, known_paths, load, variable
from headrace.model.address import Address
from headrace.model.errors import ConfigurationError


def write(directory: Path, text: str) -> str:
    path = directory / "headrace.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(
    *,
    file: str | None = None,
    environment: dict[str, str] | None = None,
    flags: dict[str, tuple[str, str]] | None = None,
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(file=file, environment=environment, flags=flags or {})
    return str(caught.value)


def test_nothing_given_means_loopback_and_the_defaults() -> None:
    loaded = load()
    assert loaded.config == NodeConfig()
    assert loaded.config.kafka.listen == Address("127.0.0.1", 9092)
    assert loaded.config.http.listen == Address("127.0.0.1", 8080)
    assert {setting.origin for setting in loaded.settings} == {"default"}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'data = "from-file"\nnode_id = 7\n[logging]\nlevel = "error"\nformat = "json"\n')
    loaded = load(
        file=file,
        environment={"HEADRACE_NODE_ID": "8", "HEADRACE_LOGGING_LEVEL": "debug", "PATH": "/bin"},
        flags={"logging.level": ("--log-level", "warning")},
    )
    assert loaded.config.data == "from-file"
    assert loaded.config.node_id == 8
    assert loaded.config.logging.level == "warning"
    origins = {setting.path: setting.origin for setting in loaded.settings}
    assert origins["data"] == f"file {file}"
    assert origins["logging.format"] == f"file {file}"
    assert origins["node_id"] == "environment HEADRACE_NODE_ID"
    assert origins["logging.level"] == "flag --log-level"
    assert origins["http.listen"] == "default"


def test_topic_defaults_are_read_with_and_without_quotes_and_from_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, '[topics.defaults]\nretention.ms = 60000\n"headrace.durability" = "memory"\n')
    loaded = load(file=file, environment={"HEADRACE_TOPICS_DEFAULTS_SEGMENT_BYTES": "1048576"})
    assert loaded.config.topics.defaults == {
        "retention.ms": "60000",
        "headrace.durability": "memory",
        "segment.bytes": "1048576",
    }


def test_a_topic_default_that_is_a_fraction_is_read_as_a_number(tmp_path: Path) -> None:
    file = write(tmp_path, "[topics.defaults]\nmin.cleanable.dirty.ratio = 0.3\n")
    assert load(file=file).config.topics.defaults == {"min.cleanable.dirty.ratio": "0.3"}


def test_every_setting_has_an_environment_variable_of_its_own() -> None:
    variables = [variable(path) for path in known_paths()]
    assert len(variables) == len(set(variables))


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_switches_in_the_environment_are_read_as_people_write_them(text: str, value: bool) -> None:
    assert load(environment={"HEADRACE_TOPICS_AUTO_CREATE": text}).config.topics.auto_create is value


@pytest.mark.parametrize("name", ["HEADRACE_CONFIG", "HEADRACE_SERVER", "HEADRACE_HTTP", "HEADRACE_STATE"])
def test_variables_of_other_commands_are_no_settings_of_a_node(name: str) -> None:
    assert load(environment={name: "x"}).config == load(environment={}).config


def test_an_unknown_key_names_the_nearest_one_with_its_file_and_path(tmp_path: Path) -> None:
    file = write(tmp_path, '[kafka]\nlissten = "127.0.0.1:1"\n')
    message = refusal(file=file)
    assert file in message
    assert "kafka.lissten" in message
    assert "did you mean kafka.listen?" in message


def test_an_unknown_section_names_the_nearest_one(tmp_path: Path) -> None:
    assert "did you mean topics?" in refusal(file=write(tmp_path, "[topic]\npartitions = 2\n"))


def test_an_unknown_variable_names_the_nearest_one() -> None:
    message = refusal(environment={"HEADRACE_KAFKA_LISEN": "127.0.0.1:1"})
    assert "HEADRACE_KAFKA_LISEN" in message
    assert "did you mean HEADRACE_KAFKA_LISTEN?" in message


def test_an_unknown_topic_default_names_the_nearest_one(tmp_path: Path) -> None:
    message = refusal(file=write(tmp_path, "[topics.defaults]\nretention.mss = 1\n"))
    assert "retention.mss" in message
    assert "did you mean retention.ms?" in message


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("node_id = -1", "node_id", ">= 0"),
        ('node_id = "one"', "node_id", "int"),
        ("data = 3", "data", "str"),
        ('data = ""', "data", "must have a name"),
        ('kafka = "127.0.0.1:9092"', "kafka", "[kafka]"),
        ('[kafka]\nlisten = "127.0.0.1"', "kafka.listen", "has no port"),
        ('[kafka]\nlisten = ":9092"', "kafka.listen", "has no host"),
        ('[kafka]\nlisten = "127.0.0.1:99999"', "kafka.listen", "65535"),
        ('[kafka]\nlisten = "::1:9092"', "kafka.listen", "brackets"),
        ("[kafka]\nlisten = 9092", "kafka.listen", "address as text"),
        ('[kafka]\nlisten = "192.0.2.1:9092"', "kafka.listen", "no authentication"),
        ('[http]\nlisten = "example.org:80"', "http.listen", "no authentication"),
        ('[http]\nlisten = "127.0.0.1:9092"', "http.listen", "taken by kafka.listen"),
        ('[http]\nlisten = "localhost:9092"', "http.listen", "taken by kafka.listen"),
        ('insecure_listen = true\n[http]\nlisten = "0.0.0.0:9092"', "http.listen", "taken by kafka.listen"),
        ('insecure_listen = true\n[kafka]\nlisten = "0.0.0.0:9092"', "kafka.advertise", "which address"),
        ('[kafka]\nadvertise = "0.0.0.0:9092"', "kafka.advertise", "cannot connect"),
        ('[kafka]\nadvertise = "example.org:0"', "kafka.advertise", "cannot connect"),
        ("[topics]\npartitions = 0", "topics.partitions", ">= 1"),
        ("[topics]\npartitions = 1.5", "topics.partitions", "int"),
        ("[topics]\npartitions = true", "topics.partitions", "int"),
        ("[topics]\npartitions = 10\npartitions_max = 5", "topics.partitions", "above topics.partitions_max"),
        ("[topics]\nnode_partitions_max = 0", "topics.node_partitions_max", ">= 1"),
        ("[answers]\nbytes_max = 0", "answers.bytes_max", "at least 1"),
        ("[topics]\nreplication = 3", "topics.replication", "single one"),
        ('[topics]\nauto_create = "yes"', "topics.auto_create", "bool"),
        ("[topics]\ndefaults = 3", "topics.defaults", "[topics.defaults]"),
        ("[topics.defaults]\nretention.ms = true", "retention.ms", "text or a number"),
        ('[topics.defaults]\nheadrace.durability = "most"', "headrace.durability", "fsync"),
        ("[topics.defaults]\nmin.insync.replicas = 2", "topics.defaults.min.insync.replicas", "never be reached"),
        ("[log]\njournal_bytes = 10", "log.journal_bytes", "at least"),
        ("[log]\njournal_append_bytes_max = 60000000", "log.journal_append_bytes_max", "twice as large"),
        ("[log]\nopen_files_max = 0", "log.open_files_max", "at least"),
        ("[kafka.limits]\nframe_bytes_max = 0", "kafka.limits.frame_bytes_max", "at least 1"),
        ("[kafka.limits]\nframe_bytes_max = 1073741824", "kafka.limits.frame_bytes_max", "never be read"),
        ("[kafka.limits]\nwrite_buffer_bytes_max = 1000", "kafka.limits.write_pause_bytes", "held back"),
        ("[kafka.limits]\nfetch_bytes_max = 1073741824", "kafka.limits.fetch_bytes_max", "disconnect its reader"),
        ("[topics.defaults]\nmax.message.bytes = 1073741823", "topics.defaults.max.message.bytes", "never fit"),
        ("[topics.defaults]\nretention.ms = 0.5", "retention.ms", "a whole number"),
        ("[topics.defaults]\nmin.cleanable.dirty.ratio = 1.5", "min.cleanable.dirty.ratio", "a number from 0 to 1"),
        ("[topics.defaults]\nmin.cleanable.dirty.ratio = nan", "min.cleanable.dirty.ratio", "a number from 0 to 1"),
        ('[topics.defaults]\nretention.ms = "1_000"', "retention.ms", "a whole number"),
        (
            '[logging]\nlevel = "loud"',
            "logging.level",
            "'loud' is not valid; it takes one of debug, info, warning, error",
        ),
        ('[logging]\nformat = "xml"', "logging.format", "'xml' is not valid; it takes one of human, json"),
        ("[logging]\nlevel = [3]", "logging.level", "it takes one of debug"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_its_place(tmp_path: Path, text: str, path: str, reason: str) -> None:
    message = refusal(file=write(tmp_path, text + "\n"))
    assert path in message
    assert reason in message


def test_a_refused_flag_is_named() -> None:
    message = refusal(flags={"kafka.listen": ("--kafka", "0.0.0.0:9092")})
    assert "--kafka" in message
    assert "--insecure-listen" in message


def test_other_machines_are_let_in_only_when_that_is_said() -> None:
    flags = {
        "kafka.listen": ("--kafka", "0.0.0.0:9092"),
        "kafka.advertise": ("--advertise", "queue.example.org:9092"),
        "insecure_listen": ("--insecure-listen", "true"),
    }
    assert load(flags=flags).config.kafka.advertise == Address("queue.example.org", 9092)


def test_a_missing_file_and_broken_toml_are_said_in_one_sentence(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(file=str(tmp_path / "absent.toml"))
    assert "not valid TOML" in refusal(file=write(tmp_path, "data = \n"))


def test_both_listeners_may_ask_for_any_free_port() -> None:
    flags = {"kafka.listen": ("--kafka", "127.0.0.1:0"), "http.listen": ("--http", "127.0.0.1:0")}
    assert load(flags=flags).config.kafka.listen.port == 0
