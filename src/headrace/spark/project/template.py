"""The text of a new project: a few files that a person reads in one sitting and then changes. Pure."""

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template

from headrace.spark.errors import OptionError
from headrace.spark.project.shape import Fields, columns

SPEC_NAME = "spark-pipeline.yml"

# What the templates themselves call something.
_TAKEN = frozenset({"spark", "dp", "f", "dataframe", "sparksession", "servers", "shape"})
_MALFORMED = "malformed"


def project_files(directory: str, name: str, servers: str, shapes: Mapping[str, Fields | None]) -> dict[str, str]:
    """Path to text, for a project over these topics; None is the shape of messages that are not JSON."""
    tables = table_names(list(shapes))
    common = {
        "directory": directory,
        # Quoted as JSON, which YAML reads: a name may look like a number.
        "name": json.dumps(name),
        "servers": json.dumps(servers),
        "topics": ", ".join(shapes),
        "table": next(iter(tables.values())),
    }
    made = {
        SPEC_NAME: _filled(SPEC_NAME, common),
        "README.md": _filled("README.md", common | {"name": name}),
        ".gitignore": _filled("gitignore.txt", {}),
    }
    for topic, shape in shapes.items():
        made[f"transformations/{tables[topic]}.py"] = _transformations(topic, tables[topic], shape)
    return made


def _transformations(topic: str, table: str, shape: Fields | None) -> str:
    values = {"topic": topic, "table": table}
    if shape is None:
        return _filled("text_topic.py.txt", values)
    malformed = _MALFORMED
    while malformed in {name.lower() for name in shape.by_name}:
        malformed += "_"
    # The text stands between quotes of Python.
    fields = ",\n    ".join(columns(shape)).replace("\\", "\\\\").replace('"', '\\"')
    return _filled("json_topic.py.txt", values | {"fields": fields, "malformed": malformed})


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (files("headrace.spark.project") / "template" / template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def table_names(topics: Sequence[str]) -> dict[str, str]:
    """A name for each topic's table that Python, SQL and the catalogue (which knows no capitals) all take."""
    names: dict[str, str] = {}
    for topic in topics:
        name = re.sub(r"\W", "_", topic, flags=re.ASCII).lower()
        if not name[0].isalpha():
            name = f"topic_{name}"
        if keyword.iskeyword(name) or name in _TAKEN:
            name = f"{name}_messages"
        if name in names.values():
            other = next(one for one, taken in names.items() if taken == name)
            raise OptionError(f"--topics {other} and {topic} would both be the table {name}; make a project for each")
        names[topic] = name
    return names
