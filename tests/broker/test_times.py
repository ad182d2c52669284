"""Looking offsets up by time."""

import asyncio
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.ids import Offset
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads
from headrace.wire.kafka.records import Record, encode_batch

from .node import Node, batch, run

MESSAGES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=30)


def timed(times_ms: list[int], codec: int = 0) -> memoryview:
    return memoryview(encode_batch([Record(time_ms, None, b"v" * 150) for time_ms in times_ms], codec=codec))


@settings(max_examples=80, deadline=None)
@given(
    sends=MESSAGES, codec=st.integers(0, 4), deleted=st.integers(0, 20), ending=st.sampled_from(["", "stop", "kill"])
)
def test_a_time_finds_the_first_message_at_or_after_it(
    sends: list[list[int]], codec: int, deleted: int, ending: str
) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(segment_bytes="4096", index_interval_bytes="512", retention_ms="-1")
        for times_ms in sends:
            partition.append(timed(times_ms, codec))
            await settle()
        start = min(deleted, partition.high_watermark)
        await partition.delete_records(Offset(start))
        if ending:
            await (node.restart() if ending == "stop" else node.kill())
            partition = node.broker.partition("t", 0)
        times = [time_ms for times_ms in sends for time_ms in times_ms]
        left = list(enumerate(times))[start:]
        for wanted_ms in range(-1, 42):
            expected = next(((offset, time_ms) for offset, time_ms in left if time_ms >= wanted_ms), None)
            assert await partition.offset_for_time(wanted_ms) == expected, wanted_ms
        if start:
            # A deleted message of the first segment may have been the newest, which the index cannot tell.
            assert (await partition.max_timestamp(upto=partition.high_watermark))[0] not in range(start)
            node.abandon()
            return
        newest = max((time_ms for _, time_ms in left))
        first = next((offset for offset, time_ms in left if time_ms == newest))
        assert await partition.max_timestamp(upto=partition.high_watermark) == (first, newest)
        ends = list(accumulate(len(times_ms) for times_ms in sends))
        for end in ends:
            newest = max(times[:end])
            assert await partition.max_timestamp(upto=Offset(end)) == (times.index(newest), newest), end
        node.abandon()

    asyncio.run(main())


def test_what_is_not_committed_is_not_found() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a", timestamp_ms=10))
        node.disk.fail("fdatasync", path_part=".journal", nth=1)
        sent = partition.append(batch(b"b", timestamp_ms=20))
        found = await partition.offset_for_time(15)
        assert found is None
        await settle()
        assert sent.done()
        assert sent.exception() is not None
        node.abandon()

    run(main())


def test_a_newer_message_that_is_not_committed_yet_does_not_hide_the_newest_that_is() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a", timestamp_ms=10))
        held = HeldThreads()
        node.logs.committer._threads = held
        sent = partition.append(batch(b"b", timestamp_ms=20))
        await settle()
        assert partition.end_offset > partition.high_watermark
        assert await partition.max_timestamp(upto=partition.high_watermark) == (0, 10)
        held.release()
        await settle()
        assert sent.done()
        assert await partition.max_timestamp(upto=partition.high_watermark) == (1, 20)
        node.abandon()

    run(main())


def test_a_header_that_overstates_its_largest_time_does_not_hide_later_messages() -> None:
    async def main() -> None:
        node = await Node().start()
        # A topic that stamped on arrival and no longer does has such headers; clients may send them too.
        partition = await node.make(message_timestamp_type="LogAppendTime")
        await partition.append(batch(b"a", timestamp_ms=10))
        stamped_ms = node.clock.wall_ms()
        await node.broker.alter_config("t", {})
        await partition.append(batch(b"b", timestamp_ms=stamped_ms + 5))
        assert await partition.offset_for_time(stamped_ms) == (0, stamped_ms)
        assert await partition.offset_for_time(stamped_ms + 1) == (1, stamped_ms + 5)
        node.abandon()

    run(main())
