"""The generated codec against kio, an independent one: the same bytes mean the same values to both."""

import dataclasses
import datetime
import enum
import io
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.wire.drawing import decode, draw_message, encode
from tests.wire.every import EVERY_MESSAGE, message_name

from headrace.wire.kafka.api import Api
from headrace.wire.kafka.primitives import ZERO_UUID

KNOWN_TO_KIO = [(api, version, kind) for api, version, kind in EVERY_MESSAGE if api.key in api_key_map]


def _kio_type(api: Api, version: int, kind: str) -> Any:
    module = load_payload_module(api.key, version, getattr(EntityType, kind))
    return getattr(module, f"{api.name}{kind.title()}")


def _plain(value: Any) -> Any:
    """A value of kio's in the terms of ours: milliseconds for durations and dates, the zero uuid for none."""
    match value:
        case enum.Enum():
            return value.value
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case tuple():
            return tuple(_plain(item) for item in value)
    return value


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare field by field. kio drops `_ms` from durations, so a name of ours without match is looked for so."""
    for field in dataclasses.fields(theirs):
        name = next(
            name
            for name in (field.name, f"{field.name}_ms", f"{field.name}_timestamp_ms")
            if name in ours.__struct_fields__
        )
        mine, other = getattr(ours, name), _plain(getattr(theirs, field.name))
        if isinstance(mine, tuple) and mine and hasattr(mine[0], "__struct_fields__"):
            assert len(mine) == len(other)
            for one, another in zip(mine, other, strict=True):
                assert_same(one, another)
        elif hasattr(mine, "__struct_fields__"):
            assert_same(mine, other)
        elif isinstance(mine, UUID) or (isinstance(mine, tuple) and mine and isinstance(mine[0], UUID)):
            uuids = mine if isinstance(mine, tuple) else (mine,)
            others = other if isinstance(mine, tuple) else (other,)
            assert uuids == tuple(item or ZERO_UUID for item in others)
        else:
            assert mine == other, name


def test_kio_knows_every_api_of_ours() -> None:
    assert KNOWN_TO_KIO == EVERY_MESSAGE


@pytest.mark.parametrize(("api", "version", "kind"), KNOWN_TO_KIO, ids=message_name)
@settings(max_examples=5, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_kio_reads_and_writes_the_same_bytes(api: Api, version: int, kind: str, seed: int) -> None:
    value = draw_message(api, version, kind, Random(seed), tame=True)
    data = encode(api, version, kind, value)
    kio_type = _kio_type(api, version, kind)
    theirs, size = entity_reader(kio_type)(data, 0)
    assert size == len(data)
    assert_same(value, theirs)
    out = io.BytesIO()
    entity_writer(kio_type)(out, theirs)
    assert out.getvalue() == data
    assert decode(api, version, kind, out.getvalue()) == value
