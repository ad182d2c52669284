"""`headrace config`: what a node would run with, where each value comes from, and whether it could start."""

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from headrace.app.config import Setting, load
from headrace.cli.output import App, Group, JsonOption, emit_json, emit_table, people
from headrace.model.topic_setting import CONFIG_KEYS

app = App(cls=Group, no_args_is_help=True, help="Show and check a node's configuration.")

FileOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", envvar="HEADRACE_CONFIG", help="Configuration file (TOML)."),
]


@app.command()
def show(file: FileOption = None, as_json: JsonOption = False) -> None:
    """Print every setting, its value and where that came from.

    The file comes first, the environment (HEADRACE_...) overrides it, and the flags of `headrace up` override both.

    [bold]Examples[/]

    [cyan]headrace config show --config headrace.toml[/]

    [cyan]HEADRACE_KAFKA_LISTEN=127.0.0.1:9192 headrace config show --json[/]
    """
    settings = load(file=file, environment=os.environ).settings
    if as_json:
        emit_json([setting._asdict() for setting in settings])
        return
    emit_table(
        ("setting", "value", "from", "environment variable"),
        [(setting.path, _shown(setting.value), setting.origin, setting.variable) for setting in settings],
    )


@app.command()
def check(file: FileOption = None, as_json: JsonOption = False) -> None:
    """Say whether a node could start with this configuration, and if not, what is wrong and where.

    [bold]Example[/]

    [cyan]headrace config check --config headrace.toml && systemctl restart headrace[/]
    """
    settings = load(file=file, environment=os.environ).settings
    defaults = {setting.path: setting.value for setting in load().settings}
    changed = sum(not _is_default(setting, defaults) for setting in settings)
    if as_json:
        emit_json({"ok": True, "settings": len(settings), "changed": changed})
    else:
        people().print(f"The configuration is valid: {changed} of {len(settings)} settings differ from the defaults.")


def _is_default(setting: Setting, defaults: Mapping[str, object]) -> bool:
    """Whether a value is what it would be had nobody given it. Those of new topics are in a table of their own."""
    if setting.path in defaults:
        return bool(setting.value == defaults[setting.path])
    key = CONFIG_KEYS[setting.path.removeprefix("topics.defaults.")]
    return bool(key.parse(setting.value) == key.parse(key.default))


def _shown(value: object) -> object:
    """As it is written in the file, and text in every row so that the column stays aligned."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
