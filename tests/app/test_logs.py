"""The node's own log lines, in both forms."""

import json
import logging

from headrace.app.logs import HumanFormatter, JsonFormatter


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "headrace.log", "levelname": "INFO", "msg": message, "created": 1_700_000_000.123}
    )
    made.__dict__.update(fields)
    return made


def test_a_line_for_people_has_time_level_message_and_fields() -> None:
    line = HumanFormatter().format(record("partition opened", topic="orders", partition=3))
    assert line == "22:13:20.123 INFO    headrace.log  partition opened  topic=orders partition=3"


def test_a_line_for_programs_is_one_json_object() -> None:
    line = json.loads(JsonFormatter().format(record("partition opened", topic="orders", partition=3)))
    assert line == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "headrace.log",
        "message": "partition opened",
        "topic": "orders",
        "partition": 3,
    }


def test_a_clients_line_breaks_forge_no_line() -> None:
    forged = record("refused", client_id="me\n22:13:20.123 INFO all is well", empty="")
    assert "\n" not in HumanFormatter().format(forged)
    assert "\n" not in JsonFormatter().format(forged)


def test_an_exception_is_kept() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        raised = record("failed")
        raised.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: broken" in HumanFormatter().format(raised)
    assert "ValueError: broken" in json.loads(JsonFormatter().format(raised))["exception"]


def test_a_value_that_json_does_not_know_is_shown_as_text() -> None:
    assert json.loads(JsonFormatter().format(record("seen", what={1})))["what"] == "{1}"
