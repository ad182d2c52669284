"""Which requests a listener accepts: under its own names, and from no web page of another site."""

import pytest
from tests.gateways.http.serving import Client, ask, get, serving

from headrace.gateways.http.message import RefusedError
from headrace.gateways.http.origin import Hosts

LOCAL = Hosts(["queue.internal"], is_loopback=True)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:1", "a.localhost:1", "Queue.Internal"]
)
def test_a_loopback_listener_knows_its_names(host: str) -> None:
    LOCAL.check({"host": host})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "", "::1:1"]
)
def test_a_foreign_name_is_refused_on_a_loopback_listener(host: str) -> None:
    with pytest.raises(RefusedError) as caught:
        LOCAL.check({"host": host})
    assert (caught.value.status, caught.value.code) == (421, "unknown_host")


def test_a_listener_for_other_machines_takes_any_name_unless_it_was_told_some() -> None:
    Hosts(is_loopback=False).check({"host": "queue.example"})
    with pytest.raises(RefusedError):
        Hosts(["queue.example"], is_loopback=False).check({"host": "other.example"})


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "same-site", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "of a later standard", "sec-fetch-dest": "image"},
    ],
)
def test_a_page_of_another_origin_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as caught:
        LOCAL.check({"host": "localhost:8080"} | headers)
    assert (caught.value.status, caught.value.code) == (403, "foreign_origin")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:8080"},
        {"sec-fetch-site": "same-origin", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "none", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"},
    ],
)
def test_its_own_page_and_a_followed_link_are_served(headers: dict[str, str]) -> None:
    LOCAL.check({"host": "localhost:8080"} | headers)


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:80.0) Gecko/20100101 Firefox/80.0"
POWERSHELL = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1"
CELERY = "Mozilla/5.0 (compatible; pycurl)"
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    ("headers", "is_visit"),
    [
        (LINK, True),
        (LINK | {"sec-fetch-site": "same-site"}, True),  # a page on another port
        # Typed, or prefetched by a rule of a page on another site, or behind a redirect: nothing tells them apart.
        (LINK | {"sec-fetch-site": "none", "user-agent": FIREFOX}, True),
        (LINK | {"sec-fetch-site": "none", "sec-purpose": "prefetch;prerender"}, True),
        (LINK | {"sec-fetch-site": "of a later standard"}, True),
        ({"user-agent": "Lynx/2.9.0 libwww-FM/2.14"}, True),
        ({"user-agent": "Opera/9.80 (X11; Linux)"}, True),
        ({"user-agent": "a program", "referer": "http://evil.example/page"}, True),
        ({"user-agent": "a program", "referer": "http://localhost:8080.evil.example/"}, True),
        ({"user-agent": "a program", "referer": "http://localhost:8080/docs"}, False),
        ({"sec-fetch-site": "same-origin", "user-agent": FIREFOX}, False),
        ({"user-agent": FIREFOX}, True),
        ({"user-agent": FIREFOX, "origin": "http://localhost:8080"}, False),
        ({"user-agent": POWERSHELL}, False),
        ({"user-agent": CELERY}, False),
        ({"user-agent": "curl/8.5.0"}, False),
        ({}, False),
    ],
)
def test_a_visit_is_told_from_a_program_and_from_the_nodes_own_page(headers: dict[str, str], is_visit: bool) -> None:
    assert LOCAL.check({"host": "localhost:8080"} | headers) is is_visit


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/hello", 200), ("HEAD", "/hello", 200), ("GET", "/gated-change", 403), ("POST", "/echo", 403)],
)
@pytest.mark.parametrize(
    "headers",
    [
        [f"{name}: {value}" for name, value in LINK.items()],
        [f"User-Agent: {FIREFOX}"],
        ["Sec-Fetch-Site: none", "Sec-Fetch-Dest: document"],
        ["Referer: http://evil.example/"],
    ],
    ids=["link", "old", "typed", "referrer"],
)
def test_a_visit_may_look_and_not_act(method: str, target: str, status: int, headers: list[str]) -> None:
    with serving(hosts=LOCAL) as server, Client(server) as client:
        client.send(get(target))  # a program of the same shape was here before
        server.open_gate("")
        for _ in range(3):  # the second time its headers are remembered
            client.send(get(target, *headers, method=method))
        if target == "/gated-change" or method == "HEAD":
            assert client.answer().status == 200
        else:
            client.answer()
        for _ in range(3):
            answer = client.answer(to_head=method == "HEAD")
            assert answer.status == status
            if status == 403:
                assert answer.problem["code"] == "foreign_visit"


def test_the_listener_refuses_before_any_route_and_by_the_absolute_target_too() -> None:
    with serving(hosts=LOCAL) as server:
        foreign = ask(server, b"GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (foreign.status, foreign.problem["code"]) == (421, "unknown_host")
        absolute = ask(server, b"GET http://evil.example/hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert absolute.status == 421
        assert server.served == []
        with Client(server) as client:
            for _ in range(3):  # the second time its headers are remembered
                client.send(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.answer().status == 200
