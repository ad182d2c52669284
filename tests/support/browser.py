"""A headless Chromium, driven over its DevTools pipe: it opens pages and runs scripts in them as a user's gestures."""

import json
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import close, pipe, read, write
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    # The sites of the tests, and no way to any other.
    "--host-resolver-rules=MAP *.example 127.0.0.1,MAP * ~NOTFOUND,EXCLUDE 127.0.0.1,EXCLUDE localhost",
)


class NavigatedError(Exception):
    """The page was left while a script ran in it."""


class Browser:
    """The browser's end of the pipe. Messages are JSON and end with a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._received = b""
        self._count = 0

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        write(self._to, json.dumps(message).encode() + b"\0")
        end_s = time.monotonic() + DEADLINE_S
        while True:
            answer = self._next(end_s - time.monotonic(), method)
            if answer.get("id") == self._count:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise NavigatedError
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, left_s: float, waited_for: str) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._from], [], [], max(left_s, 0.0))
            data = read(self._from, 65_536) if ready else b""
            assert data, f"the browser did not answer {waited_for}"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        value: dict[str, Any] = json.loads(message)
        return value

    def open(self, url: str) -> "Page":
        """Open a page as if its address had been typed."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, target, self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        page.call("Page.navigate", url=url)
        page.wait(f"location.href != 'about:blank' && document.readyState == 'complete' /* {url} */")
        return page

    def close(self, page: "Page") -> None:
        self._call("Target.closeTarget", targetId=page.target)


class Page:
    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self.target = target
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser._call(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """The value of an expression, evaluated as if the user had clicked. A promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, userGesture=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true, also across navigations."""
        end_s = time.monotonic() + DEADLINE_S
        while not self._is_true(condition):
            assert time.monotonic() < end_s, condition
            time.sleep(0.01)

    def _is_true(self, condition: str) -> bool:
        try:
            return bool(self.run(condition))
        except NavigatedError:
            return False

    @property
    def text(self) -> str:
        text: str = self.run("document.documentElement.innerText")
        return text


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, gone afterwards with all of its processes."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing; tools/install-test-tools.sh installs it"
    their_in, to_browser = pipe()
    from_browser, their_out = pipe()
    # Chromium expects the pipe at descriptors 3 and 4.
    shell = f'exec "$@" 3<&{their_in} 4>&{their_out}'
    command = [program, *_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    with (profile.parent / f"{profile.name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(their_in, their_out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    close(their_in)
    close(their_out)
    browser = Browser(to_browser, from_browser)
    try:
        yield browser
    finally:
        # It ends by itself, and with it the processes of its pages, when the pipe does.
        close(to_browser)
        close(from_browser)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()
