"""Requests to values: bodies by their type, queries by their fields. What is wrong is said with its place.

400 is for what is no JSON at all, 415 for a type that is not spoken here, 422 for JSON of another shape than asked for.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from headrace.gateways.http.message import RefusedError, Request
from headrace.gateways.http.router import decode as decode_escapes

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Form(Enum):
    """How a body is written."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"
    RAW = "*/*"
    WRONG = ""


class Decoder(Protocol[T_co]):
    def decode(self, data: bytes, /) -> T_co: ...


_MSGPACK_NAMES = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_JSON_NAMES = frozenset({"application/json", "application/*", "*/*"})
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
# What curl -d and HTML forms say when nobody said anything: storing that as a message would hide a mistake.
_FORM_NAMES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


@lru_cache(maxsize=256)
def form_of(content_type: str | None) -> Form:
    """The form that a Content-Type names. A body without one is JSON."""
    if content_type is None:
        return Form.JSON
    name = content_type.partition(";")[0].strip().lower()
    if name == "application/json" or (name.startswith("application/") and name.endswith("+json")):
        return Form.JSON
    if name in _MSGPACK_NAMES:
        return Form.MSGPACK
    return Form.WRONG if name in _FORM_NAMES or "/" not in name else Form.RAW


def _prefers_msgpack(accept: str) -> bool:
    """Whether MessagePack is named with a higher quality than JSON, or before it (RFC 9110 section 12.5.1).

    Clients that were made from the description name all that an operation can answer, with JSON first.
    """
    packed = json = (0.0, 0)
    for at, part in enumerate(accept.split(",")):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        rank = (float(quality) if _QUALITY.fullmatch(quality) else 0.0, -at)
        if name in _MSGPACK_NAMES:
            packed = max(packed, rank)
        elif name in _JSON_NAMES:
            json = max(json, rank)
    return packed[0] > 0 and packed > json


def answer_form(request: Request) -> Form:
    """JSON, unless the request asks for MessagePack or is written in it."""
    return answer_form_of(request.headers.get("content-type"), request.headers.get("accept"))


@lru_cache(maxsize=256)
def answer_form_of(content_type: str | None, accept: str | None) -> Form:
    """Likewise, by the two headers that say so."""
    if accept is not None and accept != "*/*":
        return Form.MSGPACK if _prefers_msgpack(accept) else Form.JSON
    return Form.MSGPACK if form_of(content_type) is Form.MSGPACK else Form.JSON


def unsupported_type(takes: str) -> RefusedError:
    return RefusedError(
        415,
        "unsupported_media_type",
        f"the body's Content-Type is not one that is taken here; send {takes} (with curl: --json, or "
        "-H 'content-type: application/json')",
    )


def decode(decoder: Decoder[T], body: bytes) -> T:
    """A body's value. Raises RefusedError."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise wrong_shape(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"the body cannot be read: {error}; check its syntax" if body else "there is no body; send one"
        raise RefusedError(400, "malformed_body", what) from None
    except RecursionError:
        raise RefusedError(400, "malformed_body", "the body is nested too deeply; send flatter values") from None


def wrong_shape(what: str) -> RefusedError:
    """From msgspec's sentence, which ends with the place where there is one."""
    what = what.replace("`float` that's a multiple of 1.0", "a whole number").replace("`float", "`number")
    match = re.search(r" - at (?:`key` in )?`\$\.?(.*?)`$", what)
    place = match[1] if match is not None else ""
    named = re.search(r"(?:unknown|missing required) field `([^`]*)`", what)
    field = ".".join(part for part in (place, named[1] if named is not None else "") if part)
    return RefusedError(
        422, "invalid_field", f"{what}; GET /openapi.json describes what is taken", more={"field": field}
    )


def invalid_field(field: str, what: str) -> RefusedError:
    return RefusedError(422, "invalid_field", f"{field}: {what}", more={"field": field})


def in_field(error: RefusedError, field: str) -> RefusedError:
    """A refusal of what stands in a field, which was read by itself and so did not know where it stands."""
    return RefusedError(error.status, error.code, f"{field}: {error.detail}", more={"field": field})


class Body:
    """A body of one shape, in JSON or MessagePack."""

    def __init__(self, shape: type[Any]) -> None:
        self._json: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        self._msgpack: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(shape)

    def read(self, body: bytes, content_type: str | None) -> Any:
        match form_of(content_type):
            case Form.JSON:
                return decode(self._json, body)
            case Form.MSGPACK:
                return decode(self._msgpack, body)
            case _:
                raise unsupported_type("application/json or application/msgpack")


def read_query(query: str, names: frozenset[str]) -> dict[str, str]:
    """A query's fields, each at most once. What is not known is refused: it would be a mistake that nobody sees."""
    fields: dict[str, str] = {}
    if not query:
        return fields
    decode_escapes(query)  # refuses what parse_qsl would replace
    for name, value in parse_qsl(query, keep_blank_values=True, errors="strict"):
        if name not in names:
            known = ", ".join(sorted(names)) or "no fields"
            raise invalid_field(name, f"there is no such field in the query; it takes {known}")
        if name in fields:
            raise invalid_field(name, "it was given twice; give it once")
        fields[name] = value
    return fields


_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]{1,15}")


def read_seconds(fields: Mapping[str, str], name: str, *, at_most: float, at_least: float = 0) -> float | None:
    text = fields.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or not at_least <= float(text) <= at_most:
        raise invalid_field(name, f"it takes seconds from {at_least:g} to {at_most:.0f}")
    return float(text)


def read_switch(fields: Mapping[str, str], name: str) -> bool:
    text = fields.get(name, "false")
    if text not in ("true", "false"):
        raise invalid_field(name, "it takes true or false")
    return text == "true"


def read_count(fields: Mapping[str, str], name: str, *, at_least: int, at_most: int) -> int | None:
    text = fields.get(name)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or not at_least <= int(text) <= at_most:
        raise invalid_field(name, f"it takes a whole number from {at_least} to {at_most}")
    return int(text)
