"""What a replay is about and how far it has come, as the broker keeps both.

What it is about, its plan, is the selection and the offset at which it ends in each partition of the archive. The plan
is written down before the first piece is sent, beside offsets that a group of the job's own commits: whoever goes on
with the job, on whatever machine, finds it there. It takes as many groups as it has text, all of them in one
transaction, and the first says how many. Of two machines that begin one job at once, one is refused or finds what the
other wrote.

How far it has come is what the sink remembers (`sink/publish.py`). Its name has the selection in it, so an offset that
was reached in one selection is never taken for one of another.
"""

import asyncio
import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition
from headrace.host.clock import Clock, SystemClock
from headrace.model.errors import ProducerFencedError
from headrace.spark.errors import OptionError, TakenOverError
from headrace.spark.sink.option import SinkOptions, read_options
from headrace.spark.sink.publish import published_version, transaction_timeout_ms
from headrace.spark.sink.target import find_shape
from headrace.spark.sink.topic_writer import job_identity

# Nodes keep 4,096 bytes beside an offset by default.
_TEXT_BYTES = 4_000
_DIGITS = 16
_SHOWN_LENGTH_MAX = 300
# A node forgets offsets that nobody has committed for days. A slow replay may take longer than that.
_KEEP_EVERY_MS = 3_600_000


class End(NamedTuple):
    """Where a job ends in one partition of the archive."""

    topic: str
    partition: int
    end: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    digest: str  # of the selection and the table
    selection: str  # for people
    ends: list[End]


class ReplayJob:
    """One job at the broker. `target` are the sink's options: the servers, and the topic or the queue."""

    def __init__(
        self,
        name: str,
        target: Mapping[str, str],
        *,
        selection: Mapping[str, object],
        table_id: str,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        said = json.dumps([table_id, sorted(selection.items())])
        self._digest = hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]
        self._selection = _shown(selection)
        self._target = target
        self._clock = clock or SystemClock()
        self._kept_ms = 0
        # The digest has one length, so no two jobs and selections have one name.
        self.settings = {**target, "txnAppId": f"replay-{name}-{self._digest}"}

    def find(self) -> list[End] | None:
        """Where the job ends, if it has begun; refuses one that is about something else."""
        return asyncio.run(self._find())

    def begin(self, ends: list[End]) -> list[End]:
        """Write down where the job ends, unless that was done meanwhile: then what counts is what is there."""
        options = self._options(0)
        assert options.topic is not None, "a replay has one target"
        find_shape(options, options.topic)  # offsets are kept for topics that there are
        try:
            return asyncio.run(self._begin(options.topic, ends))
        except ProducerFencedError as error:
            raise TakenOverError(f"another run of the job {self.name} begins just now: {error}") from None

    def keep(self, ends: list[End]) -> None:
        """Have the node remember the plan as long as the job goes on."""
        if self._clock.monotonic_ms() - self._kept_ms >= _KEEP_EVERY_MS:
            self.begin(ends)

    def sent_offset(self) -> int:
        """The offset behind the last piece that counts; 0 before the first."""
        return asyncio.run(self._sent_offset())

    async def _find(self) -> list[End] | None:
        async with self._client() as client:
            plan = await self._read(client)
        return None if plan is None else self._checked(plan).ends

    async def _begin(self, topic: str, ends: list[End]) -> list[End]:
        async with self._client() as client:
            texts = _texts(Plan(digest=self._digest, selection=self._selection, ends=ends))
            producer = client.transactional(self._group(0), timeout_ms=transaction_timeout_ms(0))
            # Nobody else changes the plan from here on.
            await producer.begin()
            known = await self._read(client)
            if known is not None:
                texts = _texts(self._checked(known))
            elif await published_version(client, self._progress()) >= 0:
                raise OptionError(
                    f"--job {self.name} has sent messages, and the node does not know any more up to where it goes; "
                    "give another --job, and a --from or --where that leaves out what was sent"
                )
            for number, text in enumerate(texts):
                await producer.commit_offsets(self._group(number), {TopicPartition(topic, 0): len(texts)}, text=text)
            await producer.commit()
        self._kept_ms = self._clock.monotonic_ms()
        return ends if known is None else known.ends

    async def _read(self, client: StreamClient) -> Plan | None:
        texts: list[str] = []
        count = 1
        while len(texts) < count:
            found = list((await client.groups.committed(self._group(len(texts)), stable=True)).values())
            if not found:
                return None
            (count, text) = found[0]
            texts.append(text)
        return msgspec.json.decode(zlib.decompress(base64.b64decode("".join(texts))), type=Plan)

    async def _sent_offset(self) -> int:
        async with self._client() as client:
            return max(await published_version(client, self._progress()), 0)

    def _checked(self, plan: Plan) -> Plan:
        if plan.digest != self._digest:
            what = "the same of another table" if plan.selection == self._selection else plan.selection
            raise OptionError(
                f"--job {self.name} was begun for another selection ({what}); give another --job for this one, "
                "or the same options to go on with that one"
            )
        return plan

    def _client(self) -> StreamClient:
        options = self._options(0)
        return StreamClient(options.servers, config=options.client)

    def _options(self, number: int) -> SinkOptions:
        name = {"txnAppId": f"plan-{number}-of-replay-{self.name}", "txnVersion": "0"}
        return read_options({**self._target, **name})

    def _group(self, number: int) -> str:
        return job_identity(self._options(number)).name

    def _progress(self) -> str:
        return job_identity(read_options({**self.settings, "txnVersion": "0"})).name


def _shown(selection: Mapping[str, object]) -> str:
    text = ", ".join(f"{name} {value}" for name, value in selection.items()) or "all messages"
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}…"


def _texts(plan: Plan) -> list[str]:
    """The plan, in pieces that fit beside an offset."""
    text = base64.b64encode(zlib.compress(msgspec.json.encode(plan))).decode()
    return [text[start : start + _TEXT_BYTES] for start in range(0, len(text), _TEXT_BYTES)]
