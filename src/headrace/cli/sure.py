"""The question before something that cannot be undone."""

import sys
from typing import Annotated

import typer

from headrace.cli.output import fail

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def make_sure(question: str, *, yes: bool) -> None:
    """Go on only if a person says so now, or has said so with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("this cannot be undone, and there is no terminal to ask at; add --yes")
    typer.confirm(question, abort=True)
