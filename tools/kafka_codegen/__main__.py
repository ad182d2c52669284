"""Run as `python -m tools.kafka_codegen TABLES_DIR` from the repository's root."""

import subprocess
import sys
from pathlib import Path

from tools.kafka_codegen.module import module_text, registry_text
from tools.kafka_codegen.table import Message, load, snake

_PACKAGE = Path(__file__).parents[2] / "src/headrace/wire/kafka"
_PACKAGE_DOC = '"""One module for each API: its request and response, with readers and writers for every version."""\n'


def pair(messages: list[Message]) -> dict[str, list[Message]]:
    """Messages by the name of their API, request before response; data types stand alone, headers are left out."""
    by_name = {message.name: message for message in messages}
    modules: dict[str, list[Message]] = {}
    for message in messages:
        if message.kind == "request":
            name = message.name.removesuffix("Request")
            response = by_name[f"{name}Response"]
            if (message.versions, message.flexible_from) != (response.versions, response.flexible_from):
                raise ValueError(f"{name}: request and response differ in their versions")
            modules[name] = [message, response]
        elif message.kind == "data":
            modules[message.name] = [message]
    return modules


def main(tables: Path) -> None:
    messages = [load(path) for path in sorted(tables.glob("*.json"))]
    folder = _PACKAGE / "messages"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    (folder / "__init__.py").write_text(_PACKAGE_DOC)
    for name, parts in pair(messages).items():
        (folder / f"{snake(name)}.py").write_text(module_text(name, parts))
    registry = _PACKAGE / "registry.py"
    registry.write_text(registry_text(message for message in messages if message.kind == "request"))
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", "--select", "I", folder, registry], check=True)
    subprocess.run([*ruff, "format", "--quiet", folder, registry], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.kafka_codegen TABLES_DIR")
    main(Path(sys.argv[1]))
