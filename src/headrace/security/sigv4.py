"""Verification of AWS Signature Version 4, as a header or in the query of a presigned address.

A client signs a canonical form of its request with a key that is derived from its secret, the day, the region and the
service. Here the same form is made from what arrived, raw, and the two signatures are compared in constant time:

    canonical request  method, path, query, the signed headers, the SHA-256 of the body
    string to sign     algorithm, time, scope, the SHA-256 of the canonical request
    signature          HMAC-SHA-256 of it with the derived key

What a thief of one signed request could change must be under the signature: the host, every x-amz-* header, the real
body, and a time that is close to ours. See "Create a signed AWS API request" in the IAM User Guide.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from headrace.security.access_keys import AccessKeys

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_MS_MAX = 15 * 60_000
EXPIRES_S_MAX = 7 * 24 * 60 * 60

_TERMINATOR = "aws4_request"
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_UNRESERVED = "-_.~"
_DERIVED_MAX = 1_000


class Failure(Enum):
    """Why a signature is not accepted, by the names that AWS gives to it."""

    MISSING = "MissingAuthenticationToken"
    INCOMPLETE = "IncompleteSignature"
    UNKNOWN_KEY = "InvalidClientTokenId"
    WRONG = "SignatureDoesNotMatch"
    EXPIRED = "RequestExpired"


class SignatureRefusedError(Exception):
    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class Signable(NamedTuple):
    """A request as it arrived: path and query raw, names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class _Claim(NamedTuple):
    """What a request says about its own signature."""

    key_id: str
    scope: str  # date/region/service/aws4_request
    signed_headers: list[str]
    signature: str
    time: str
    query: list[tuple[str, str]]  # without the signature itself
    expires_s: int | None  # of a presigned address


class Verifier:
    """Checks signatures for one service against the keys that it knows."""

    def __init__(self, keys: AccessKeys, *, service: str, region: str) -> None:
        self._keys = keys
        self._service = service
        self._region = region
        # The derived keys of a day, by id and scope: four HMACs less for each request.
        self._derived: dict[tuple[str, str], bytes] = {}

    def verify(self, request: Signable, *, now_ms: int) -> str:
        """The id of the key that signed the request, or SignatureRefusedError."""
        claim = _read_claim(request)
        secret = self._keys.get(claim.key_id)
        if secret is None:
            raise SignatureRefusedError(
                Failure.UNKNOWN_KEY, "The security token included in the request is invalid: no such access key."
            )
        self._check_scope(claim)
        _check_time(claim, now_ms)
        _check_coverage(claim, request.headers)
        payload = hashlib.sha256(request.body).hexdigest()
        if request.headers.get("x-amz-content-sha256", payload) != payload:
            raise SignatureRefusedError(
                Failure.WRONG, "The header x-amz-content-sha256 is not the SHA-256 of the body that arrived."
            )
        expected = hmac.new(
            self._derived_key(claim.key_id, claim.scope), _string_to_sign(request, claim, payload), hashlib.sha256
        ).hexdigest()
        if not hmac.compare_digest(expected.encode(), claim.signature.encode("utf-8", "surrogateescape")):
            raise SignatureRefusedError(
                Failure.WRONG,
                "The request signature we calculated does not match the signature you provided. Check your secret "
                "access key and signing method.",
            )
        return claim.key_id

    def _check_scope(self, claim: _Claim) -> None:
        expected = f"{claim.time[:8]}/{self._region}/{self._service}/{_TERMINATOR}"
        if claim.scope != expected:
            raise SignatureRefusedError(
                Failure.WRONG, f"Credential should be scoped to {expected}, the day, region and service of the request."
            )

    def _derived_key(self, key_id: str, scope: str) -> bytes:
        derived = self._derived.get((key_id, scope))
        if derived is None:
            if len(self._derived) >= _DERIVED_MAX:
                self._derived.clear()
            derived = f"AWS4{self._keys[key_id].reveal()}".encode()
            for part in scope.split("/"):
                derived = hmac.digest(derived, part.encode(), "sha256")
            self._derived[key_id, scope] = derived
        return derived


def _incomplete(message: str) -> SignatureRefusedError:
    return SignatureRefusedError(Failure.INCOMPLETE, message)


def _read_claim(request: Signable) -> _Claim:
    authorization = request.headers.get("authorization")
    pairs = [_pair(text) for text in request.query.split("&")] if request.query else []
    if authorization is not None:
        return _header_claim(authorization, pairs, request.headers)
    if any(name == "X-Amz-Signature" for name, _ in pairs):
        return _query_claim(pairs)
    raise SignatureRefusedError(
        Failure.MISSING, "Request is missing Authentication Token: sign it with an access key of this node."
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return _decoded(name), _decoded(value)


def _decoded(text: str) -> str:
    # HTTP libraries send a space as a plus after it was signed as %20. Bytes that are not UTF-8 go through as they are:
    # the signature decides about them, nobody else.
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


def _header_claim(authorization: str, pairs: list[tuple[str, str]], headers: Mapping[str, str]) -> _Claim:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != ALGORITHM:
        raise _incomplete(f"Authorization header requires the algorithm {ALGORITHM}.")
    fields = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        fields[name] = value
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not fields.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    time = headers.get("x-amz-date")
    if time is None:
        time = _from_http_date(headers.get("date"))
    key_id, scope = _split_credential(fields["Credential"])
    return _Claim(key_id, scope, fields["SignedHeaders"].split(";"), fields["Signature"], time, pairs, None)


def _query_claim(pairs: list[tuple[str, str]]) -> _Claim:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _incomplete("A presigned address must not repeat a parameter.")
    for name in ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders"):
        if not fields.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
    if fields["X-Amz-Algorithm"] != ALGORITHM:
        raise _incomplete(f"X-Amz-Algorithm must be {ALGORITHM}.")
    expires = fields["X-Amz-Expires"]
    if not (expires.isascii() and expires.isdigit() and 1 <= int(expires[:10]) <= EXPIRES_S_MAX):
        raise _incomplete(f"X-Amz-Expires must be between 1 and {EXPIRES_S_MAX} seconds.")
    key_id, scope = _split_credential(fields["X-Amz-Credential"])
    return _Claim(
        key_id,
        scope,
        fields["X-Amz-SignedHeaders"].split(";"),
        fields["X-Amz-Signature"],
        fields["X-Amz-Date"],
        [pair for pair in pairs if pair[0] != "X-Amz-Signature"],
        int(expires),
    )


def _split_credential(credential: str) -> tuple[str, str]:
    key_id, _, scope = credential.partition("/")
    if not key_id or scope.count("/") != 3:
        raise _incomplete("Credential must be <access key id>/<date>/<region>/<service>/aws4_request.")
    return key_id, scope


def _from_http_date(date: str | None) -> str:
    if date is None:
        raise _incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    try:
        return parsedate_to_datetime(date).astimezone(UTC).strftime(_TIME_FORMAT)
    except (ValueError, OverflowError):
        raise _incomplete("The Date header is not a date of HTTP.") from None


def _check_time(claim: _Claim, now_ms: int) -> None:
    try:
        signed_ms = int(datetime.strptime(claim.time, _TIME_FORMAT).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise _incomplete("The time of signing must have the form 20260131T235959Z.") from None
    age_ms = now_ms - signed_ms
    life_ms = SKEW_MS_MAX if claim.expires_s is None else claim.expires_s * 1000
    if age_ms < -SKEW_MS_MAX:
        raise SignatureRefusedError(Failure.EXPIRED, f"Signature not yet current: {claim.time}; set the clock right.")
    if age_ms > life_ms:
        raise SignatureRefusedError(Failure.EXPIRED, f"Signature expired: it was made at {claim.time}; sign anew.")


def _check_coverage(claim: _Claim, headers: Mapping[str, str]) -> None:
    """A header that decides what is done must not be changed by somebody on the way."""
    signed = set(claim.signed_headers)
    if "host" not in signed:
        raise _incomplete("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    if claim.expires_s is None and "x-amz-date" not in headers and "date" not in signed:
        raise _incomplete("'Date' must be a 'SignedHeader' in the AWS Authorization.")
    for name in headers:
        if name.startswith("x-amz-") and name not in signed:
            raise _incomplete(f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")


def _string_to_sign(request: Signable, claim: _Claim, payload: str) -> bytes:
    lines = [request.method, canonical_path(request.path), canonical_query(claim.query)]
    for name in claim.signed_headers:
        lines.append(f"{name}:{' '.join(request.headers.get(name, '').split())}")
    lines += "", ";".join(claim.signed_headers), payload
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{ALGORITHM}\n{claim.time}\n{claim.scope}\n{digest}".encode()


def canonical_path(path: str) -> str:
    """The raw path without dot segments and doubled slashes, encoded once more, as every service but S3 wants it."""
    if path == "/":
        return path
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment and segment != ".":
            kept.append(segment)
    ending = "/" if path.endswith("/") and kept else ""
    return quote("/" + "/".join(kept) + ending, safe="/" + _UNRESERVED)


def canonical_query(pairs: Iterable[tuple[str, str]]) -> str:
    encoded = sorted((_encoded(name), _encoded(value)) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED, errors="surrogateescape")
