"""kcat: librdkafka on the command line.

It reads messages to send from its input, cut by delimiters, so it cannot send those bytes, nor times of its user's
choice, nor different headers in one run. An absent key delimiter means a null key.
"""

import re
import subprocess
from collections.abc import Sequence
from itertools import groupby

from tests.compat.clients.message import DEADLINE_S, Message, Stored

_KEY_END = b"\x1f"
_MESSAGE_END = b"\x1e"
# Key and value are cut out by their lengths, so they may hold anything; headers are written as name=value,name=value.
_FORMAT = "%o %T %K %S %k%s%h\\x1e"
_HEAD = re.compile(rb"(\d+) (-?\d+) (-?\d+) (-?\d+) ")


def kcat(*arguments: str, input: bytes = b"", is_checked: bool = True) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(["kcat", *arguments], input=input, capture_output=True, timeout=DEADLINE_S)
    if is_checked:
        assert done.returncode == 0, done.stderr[-2000:]
    return done


class Kcat:
    name = "kcat"

    def can_write(self, message: Message) -> bool:
        if message.timestamp_ms is not None or message.value is None:
            return False
        return not any(end in part for part in (message.key or b"", message.value) for end in (_KEY_END, _MESSAGE_END))

    def write(
        self,
        server: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
        partition: int = 0,
        bytes_max: int = 1_048_588,
    ) -> list[int]:
        for headers, group in groupby(messages, key=lambda message: message.headers):
            arguments = ["-P", "-b", server, "-t", topic, "-p", str(partition), "-D", "\\x1e", "-K", "\\x1f"]
            for setting in (
                f"compression.codec={codec}",
                f"acks={acks}",
                f"enable.idempotence={str(is_idempotent).lower()}",
                f"message.max.bytes={bytes_max}",
            ):
                arguments += ["-X", setting]
            for name, value in headers:
                arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
            kcat(*arguments, input=b"".join(map(_line, group)))
        return [-1] * len(messages)

    def read(
        self, server: str, topic: str, *, offset: int = 0, partition: int = 0, committed: bool = False
    ) -> list[Stored]:
        level = "read_committed" if committed else "read_uncommitted"
        done = kcat(
            *("-C", "-q", "-e", "-b", server, "-t", topic, "-p", str(partition), "-o", str(offset), "-f", _FORMAT),
            *("-X", f"isolation.level={level}", "-X", "fetch.wait.max.ms=20"),
        )
        return _parse(done.stdout)

    def offset_at(self, server: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
        done = kcat("-Q", "-b", server, "-t", f"{topic}:{partition}:{timestamp_ms}")
        found = int(done.stdout.split()[-1])
        return found if found >= 0 else None


def _line(message: Message) -> bytes:
    assert message.value is not None
    key = b"" if message.key is None else message.key + _KEY_END
    return key + message.value + _MESSAGE_END


def _parse(text: bytes) -> list[Stored]:
    found: list[Stored] = []
    at = 0
    while at < len(text):
        head = _HEAD.match(text, at)
        assert head is not None, text[at : at + 200]
        offset, timestamp_ms, key_size, value_size = map(int, head.groups())
        key, at = _field(text, head.end(), key_size)
        value, at = _field(text, at, value_size)
        end = text.index(_MESSAGE_END, at)
        headers = tuple(_header(part) for part in text[at:end].split(b",")) if end > at else ()
        found.append((offset, Message(value=value, key=key, headers=headers, timestamp_ms=timestamp_ms)))
        at = end + 1
    return found


def _field(text: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (text[at : at + size], at + size)


def _header(part: bytes) -> tuple[str, bytes | None]:
    name, _, value = part.partition(b"=")
    return name.decode(), None if value == b"NULL" else value
