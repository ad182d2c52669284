"""A node that counts every call of its own functions and every line of them that runs, in all of its threads.

Run as `python -m benchmarks.traced_node up ...`. It takes words on standard input, one a line, and answers each with a
line on standard error: `reset` forgets the counts, `dump FILE` writes them as JSON.
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import headrace

PACKAGE = str(Path(headrace.__file__).parent) + "/"

calls: Counter[CodeType] = Counter()
lines: Counter[CodeType] = Counter()


def on_call(frame: FrameType, event: str, argument: Any) -> Any:
    """Follow only frames of headrace; a loop over messages would show in its lines, even one that calls nothing."""
    if not frame.f_code.co_filename.startswith(PACKAGE):
        return None
    calls[frame.f_code] += 1
    return on_line


def on_line(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "line":
        lines[frame.f_code] += 1
    return on_line


def snapshot() -> list[dict[str, Any]]:
    return [
        {
            "place": f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno}",
            "function": code.co_qualname,
            "calls": count,
            "lines": lines.get(code, 0),
        }
        for code, count in calls.copy().items()
    ]


def obey() -> None:
    for command in sys.stdin:
        word, _, argument = command.strip().partition(" ")
        if word == "reset":
            calls.clear()
            lines.clear()
        elif word == "dump":
            Path(argument).write_text(json.dumps(snapshot()))
        sys.stderr.write(f"done: {word}\n")
        sys.stderr.flush()


def main() -> None:
    from headrace.cli.main import main as headrace_main

    threading.Thread(target=obey, daemon=True).start()  # before tracing begins, so that it is not counted
    threading.settrace(on_call)
    sys.settrace(on_call)
    headrace_main()


if __name__ == "__main__":
    main()
