"""A Python that follows a document's blocks one after the other with one Spark session: a line of JSON for each.

`{"python": CODE}` is executed beside what came before it; `{"pipeline": [ARGUMENT, ...]}` is `headrace pipeline run …`
on the session that is there. The answer is a line `NUL + exit code`.
"""

import json
import sys
import traceback
from typing import Any

from headrace.cli.main import app
from headrace.spark import session
from headrace.spark.pipeline import run as pipeline


def execute(request: dict[str, Any], namespace: dict[str, Any]) -> int:
    try:
        if "python" in request:
            exec(compile(request["python"], "block", "exec"), namespace)
        else:
            app(request["pipeline"], standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever a block raises is its failure
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    # A pipeline that ends leaves the session to the next one.
    setattr(pipeline, "_start_session", lambda *_: session("documents", master="local[2]"))  # noqa: B010
    setattr(pipeline, "_stop_session", lambda _: None)  # noqa: B010
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        code = execute(json.loads(line), namespace)
        sys.stderr.flush()
        print(f"\0{code}", flush=True)


if __name__ == "__main__":
    main()
