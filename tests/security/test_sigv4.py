"""botocore signs, headrace verifies; and each thing that a signature covers is changed in turn."""

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.security.secret import Secret
from headrace.security.sigv4 import Failure, Signable, SignatureRefusedError, Verifier

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
HOST = "localhost:8080"
MINUTE_MS = 60_000

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
HEADERS = st.dictionaries(
    NAMES.map(lambda name: f"x-amz-meta-{name}"),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
)
PATHS = st.lists(st.one_of(TEXTS, st.sampled_from(["", ".", "..", "~a", "a b", "%2F"])), max_size=5).map(
    lambda segments: "/" + "/".join(quote(segment, safe="~%") for segment in segments)
)
QUERIES = st.dictionaries(TEXTS.filter(lambda name: name and not name.startswith("X-Amz-")), TEXTS, max_size=5)


def verifier(*, region: str = "us-east-1", secret: str = SECRET) -> Verifier:
    return Verifier({KEY_ID: Secret(secret)}, service="sqs", region=region)


def signable(request: AWSRequest) -> Signable:
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    headers = {str(name).lower(): _text(value) for name, value in prepared.headers.items()}
    body = prepared.body or b""
    return Signable(
        prepared.method,
        parts.path or "/",
        parts.query,
        {"host": parts.netloc, **headers},
        body.encode() if isinstance(body, str) else body,
    )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def sign(
    method: str = "POST",
    path: str = "/",
    *,
    params: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"{}",
    token: str | None = None,
) -> Signable:
    request = AWSRequest(
        method=method, url=f"http://{HOST}{path}", params=params or {}, headers=headers or {}, data=body
    )
    SigV4Auth(Credentials(KEY_ID, SECRET, token), "sqs", "us-east-1").add_auth(request)
    return signable(request)


def presign(*, path: str = "/", params: dict[str, str] | None = None, expires_s: int = 60) -> Signable:
    request = AWSRequest(method="GET", url=f"http://{HOST}{path}", params=params or {"Action": "ListQueues"})
    SigV4QueryAuth(Credentials(KEY_ID, SECRET), "sqs", "us-east-1", expires=expires_s).add_auth(request)
    return signable(request)


def signed_at_ms(request: Signable) -> int:
    text = (
        request.headers.get("x-amz-date")
        or dict(
            pair.split("=", 1)
            for pair in request.query.split("&")  # botocore escapes nothing in a date
        )["X-Amz-Date"]
    )
    return int(datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


def verify(request: Signable, *, later_ms: int = 0, by: Verifier | None = None, signed: Signable | None = None) -> str:
    return (by or verifier()).verify(request, now_ms=signed_at_ms(signed or request) + later_ms)


def refusal(
    request: Signable, *, later_ms: int = 0, by: Verifier | None = None, signed: Signable | None = None
) -> Failure:
    with pytest.raises(SignatureRefusedError) as refused:
        verify(request, later_ms=later_ms, by=by, signed=signed)
    assert SECRET not in str(refused.value)
    return refused.value.failure


@settings(max_examples=60)
@given(PATHS, QUERIES, HEADERS, st.binary(max_size=50))
def test_what_botocore_signs_is_accepted(
    path: str, params: dict[str, str], headers: dict[str, str], body: bytes
) -> None:
    request = sign("POST", path, params=params, headers=headers, body=body)
    assert verify(request) == KEY_ID


@given(QUERIES)
def test_what_botocore_presigns_is_accepted(params: dict[str, str]) -> None:
    assert verify(presign(params={"Action": "ListQueues", **params})) == KEY_ID


def test_a_presigned_queue_address_is_accepted_until_its_time_is_over() -> None:
    request = presign(path="/000000000000/orders", expires_s=120)
    assert verify(request, later_ms=119_000) == KEY_ID
    assert refusal(request, later_ms=121_000) is Failure.EXPIRED


def test_a_session_token_is_part_of_what_is_signed() -> None:
    request = sign(token="token")
    assert verify(request) == KEY_ID
    assert refusal(request._replace(headers={**request.headers, "x-amz-security-token": "other"})) is Failure.WRONG


CHANGES: dict[str, Callable[[Signable], Signable]] = {
    "method": lambda r: r._replace(method="GET"),
    "path": lambda r: r._replace(path="/000000000000/other"),
    "query": lambda r: r._replace(query="Action=DeleteQueue"),
    "body": lambda r: r._replace(body=b'{"a": 1}'),
    "host": lambda r: r._replace(headers={**r.headers, "host": "elsewhere"}),
    "target": lambda r: r._replace(headers={**r.headers, "x-amz-target": "AmazonSQS.DeleteQueue"}),
    "signature": lambda r: r._replace(headers={**r.headers, "authorization": r.headers["authorization"][:-1] + "x"}),
    "not ascii": lambda r: r._replace(headers={**r.headers, "authorization": r.headers["authorization"] + "\xff"}),
    "region": lambda r: r._replace(
        headers={**r.headers, "authorization": r.headers["authorization"].replace("us-east-1", "eu-west-1")}
    ),
    "service": lambda r: r._replace(
        headers={**r.headers, "authorization": r.headers["authorization"].replace("/sqs/", "/sns/")}
    ),
    "hash of the body": lambda r: r._replace(headers={**r.headers, "x-amz-content-sha256": "0" * 64}),
}


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_a_signed_request_that_was_changed_is_refused(what: str) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "X-Amz-Content-SHA256": ""}
    if what != "hash of the body":
        del headers["X-Amz-Content-SHA256"]
    request = sign(path="/000000000000/orders", headers=headers)
    assert refusal(CHANGES[what](request), signed=request) is Failure.WRONG


def test_an_unsigned_amazon_header_is_refused() -> None:
    request = sign()
    added = request._replace(headers={**request.headers, "x-amz-target": "AmazonSQS.DeleteQueue"})
    assert refusal(added) is Failure.INCOMPLETE


def test_a_signature_that_leaves_the_body_out_is_refused() -> None:
    request = sign(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    assert refusal(request) is Failure.WRONG


def test_the_hash_that_the_client_names_is_compared_with_the_body() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    request = sign(headers={"X-Amz-Content-SHA256": empty}, body=b"")
    assert verify(request) == KEY_ID
    assert refusal(request._replace(body=b"x")) is Failure.WRONG


def test_old_and_future_signatures_are_refused() -> None:
    request = sign()
    assert verify(request, later_ms=14 * MINUTE_MS) == KEY_ID
    assert verify(request, later_ms=-14 * MINUTE_MS) == KEY_ID
    assert refusal(request, later_ms=16 * MINUTE_MS) is Failure.EXPIRED
    assert refusal(request, later_ms=-16 * MINUTE_MS) is Failure.EXPIRED


def test_wrong_and_unknown_keys_are_told_apart() -> None:
    assert refusal(sign(), by=verifier(secret="another")) is Failure.WRONG
    assert refusal(sign(), by=Verifier({}, service="sqs", region="us-east-1")) is Failure.UNKNOWN_KEY
    assert refusal(sign(), by=verifier(region="eu-west-1")) is Failure.WRONG


@pytest.mark.parametrize(
    ("authorization", "failure"),
    [
        (None, Failure.MISSING),
        ("", Failure.INCOMPLETE),
        ("Basic abc", Failure.INCOMPLETE),
        ("AWS4-HMAC-SHA256", Failure.INCOMPLETE),
        ("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=x", Failure.INCOMPLETE),
        ("AWS4-HMAC-SHA256 Credential=a/b/c/d/e, Signature=x", Failure.INCOMPLETE),
        ("AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=x", Failure.UNKNOWN_KEY),
        (f"AWS4-HMAC-SHA256 Credential={KEY_ID}/b/c/d/e, SignedHeaders=host, Signature=x", Failure.WRONG),
    ],
)
def test_a_header_that_is_no_signature_says_what_is_missing(authorization: str | None, failure: Failure) -> None:
    signed = sign()
    headers = {name: value for name, value in signed.headers.items() if name != "authorization"}
    if authorization is not None:
        headers["authorization"] = authorization
    assert refusal(signed._replace(headers=headers)) is failure


def test_a_signature_without_a_time_or_with_a_bad_one_is_incomplete() -> None:
    signed = sign()
    without = {name: value for name, value in signed.headers.items() if name != "x-amz-date"}
    assert refusal(signed._replace(headers=without), signed=signed) is Failure.INCOMPLETE
    assert refusal(signed._replace(headers={**without, "date": "soon"}), signed=signed) is Failure.INCOMPLETE
    overflows = "Fri, 31 Dec 9999 23:59:59 -2359"
    assert refusal(signed._replace(headers={**without, "date": overflows}), signed=signed) is Failure.INCOMPLETE


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_nonsense_is_refused_and_nothing_worse(authorization: str, query: str, date: str) -> None:
    for headers in ({"authorization": f"AWS4-HMAC-SHA256 {authorization}", "x-amz-date": date}, {"host": HOST}):
        presigned = f"{query}&X-Amz-Signature=%ff" if "authorization" not in headers else query
        with pytest.raises(SignatureRefusedError):
            verifier().verify(Signable("POST", "/", presigned, headers, b""), now_ms=0)
