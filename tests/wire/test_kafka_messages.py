"""Every message in every version: what is written is read back, and nothing malformed is anything but refused."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.drawing import decode, draw_message, encode
from tests.wire.every import EVERY_MESSAGE, message_name

from headrace.wire.kafka.api import Api
from headrace.wire.kafka.primitives import MalformedError
from headrace.wire.kafka.registry import APIS

every_message = pytest.mark.parametrize(("api", "version", "kind"), EVERY_MESSAGE, ids=message_name)
seeds = st.integers(0, 2**32)


@every_message
@settings(max_examples=5, deadline=None, database=None)
@given(seed=seeds)
def test_a_message_is_read_back_as_it_was_written(api: Api, version: int, kind: str, seed: int) -> None:
    value = draw_message(api, version, kind, Random(seed))
    data = encode(api, version, kind, value)
    assert decode(api, version, kind, data) == value
    assert decode(api, version, kind, memoryview(bytearray(data))) == value


@every_message
def test_a_message_cut_at_any_byte_is_refused(api: Api, version: int, kind: str) -> None:
    data = encode(api, version, kind, draw_message(api, version, kind, Random(version)))
    for size in range(len(data)):
        with pytest.raises(MalformedError):
            decode(api, version, kind, data[:size])


@every_message
def test_bytes_left_over_are_refused(api: Api, version: int, kind: str) -> None:
    data = encode(api, version, kind, draw_message(api, version, kind, Random(version)))
    with pytest.raises(MalformedError, match="left over"):
        decode(api, version, kind, data + b"\x00")


@pytest.mark.parametrize("api", APIS.values(), ids=message_name)
@settings(max_examples=10, deadline=None, database=None)
@given(seed=seeds, noise=st.binary(min_size=1, max_size=5), data=st.data())
def test_a_mutated_message_is_read_or_refused(api: Api, seed: int, noise: bytes, data: st.DataObject) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for kind in ("request", "response"):
            intact = encode(api, version, kind, draw_message(api, version, kind, Random(seed)))
            at = data.draw(st.integers(0, len(intact)))
            with suppress(MalformedError):
                decode(api, version, kind, intact[:at] + noise + intact[at + len(noise) :])


@pytest.mark.parametrize("api", APIS.values(), ids=message_name)
def test_unknown_tagged_fields_are_skipped(api: Api) -> None:
    for version in range(api.flexible_from if api.flexible_from is not None else 1 << 15, api.max_version + 1):
        for kind in ("request", "response"):
            empty = encode(api, version, kind, (api.codec.request if kind == "request" else api.codec.response)())
            assert empty[-1] == 0
            tagged = empty[:-1] + b"\x01\xc8\x01\x03abc"
            assert decode(api, version, kind, tagged) == decode(api, version, kind, empty)
