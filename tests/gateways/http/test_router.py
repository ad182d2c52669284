"""Paths to routes: patterns, what stands in them, methods, and gateways that share a port."""

import pytest

from headrace.gateways.http.message import RefusedError, Request, Response
from headrace.gateways.http.router import Found, Route, Router, decode
from headrace.gateways.http.slot import choose


def named(name: str) -> Response:
    return Response(body=name.encode())


def routes() -> list[Route]:
    return [
        Route("GET", "/", lambda _: named("old"), when=lambda request: "Action=" in request.query),
        Route("GET", "/", lambda _: named("index")),
        Route("POST", "/{account:[0-9]{12}}/{queue}", lambda _: named("account")),
        Route("GET", "/queues/{queue}/messages", lambda _: named("receive"), is_safe=False),
        Route("POST", "/queues/{queue}/messages", lambda _: named("send")),
        Route("DELETE", "/queues/{queue}/messages/{receipt}", lambda _: named("acknowledge")),
        Route("GET", "/queues/all/messages", lambda _: named("literal")),
    ]


def served(method: str, path: str, query: str = "") -> tuple[bytes, tuple[str, ...]]:
    found = Router(routes()).find(method, path)
    route = choose(found, Request(method, path, query, {}, b""))
    answer = route.handler(Request(method, path, query, {}, b""))
    assert isinstance(answer, Response)
    return answer.body, found.values


def refused(method: str, path: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        Router(routes()).find(method, path)
    return caught.value


def test_a_placeholder_takes_one_segment_and_gives_its_value() -> None:
    assert served("DELETE", "/queues/orders/messages/abc") == (b"acknowledge", ("orders", "abc"))


def test_a_literal_wins_over_a_placeholder_and_only_where_it_leads_somewhere() -> None:
    assert served("GET", "/queues/all/messages") == (b"literal", ())
    assert served("DELETE", "/queues/all/messages/abc") == (b"acknowledge", ("all", "abc"))


def test_an_encoded_slash_is_part_of_the_value() -> None:
    assert served("DELETE", "/queues/a%2Fb/messages/x%20y%C3%A9") == (b"acknowledge", ("a/b", "x yé"))
    assert served("POST", "/%71ueues/orders/messages") == (b"send", ("orders",))


@pytest.mark.parametrize("path", ["/queues/%zz/messages", "/queues/%/messages", "/queues/%C3/messages", "/%F"])
def test_an_encoding_that_cannot_be_undone_is_refused(path: str) -> None:
    assert (refused("GET", path).status, refused("GET", path).code) == (400, "malformed_path")


def test_a_narrowed_placeholder_takes_only_what_it_describes() -> None:
    assert served("POST", "/000000000000/orders") == (b"account", ("000000000000", "orders"))
    assert refused("POST", "/00000000000/orders").status == 404


@pytest.mark.parametrize("path", ["/queues//messages", "/queues/a/messages/", "/queues/a/b/c/d", "//", "*", "queues"])
def test_a_path_that_leads_nowhere_is_not_found(path: str) -> None:
    assert refused("DELETE", path).status == 404


def test_a_wrong_method_is_told_the_right_ones() -> None:
    error = refused("PATCH", "/queues/orders/messages")
    assert (error.status, dict(error.headers)["Allow"]) == (405, "GET, POST")
    assert dict(refused("PUT", "/").headers)["Allow"] == "GET, HEAD"


def test_head_is_not_answered_where_a_get_takes_something() -> None:
    assert refused("HEAD", "/queues/orders/messages").status == 405
    assert served("HEAD", "/")[0] == b"index"


def test_routes_of_one_path_are_told_apart_in_the_order_of_their_declaration() -> None:
    assert served("GET", "/", "Action=ListQueues")[0] == b"old"
    assert served("GET", "/")[0] == b"index"


def test_a_path_that_the_table_does_not_have_goes_to_the_fallback() -> None:
    class Rest:
        def find(self, method: str, path: str) -> Found:
            return Found((Route(method, "/rest", lambda _: named("rest")),), ())

    router = Router(routes(), fallback=Rest())
    assert router.find("GET", "/elsewhere").routes[0].path == "/rest"
    assert router.find("GET", "/queues/orders/messages").routes[0].path == "/queues/{queue}/messages"


def test_two_routes_that_nothing_tells_apart_cannot_be_declared() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Router([Route("GET", "/a", lambda _: named("a")), Route("GET", "/a", lambda _: named("b"))])


def test_a_plus_is_a_plus() -> None:
    assert decode("a+b") == "a+b"
