"""Whom a listener answers to: names of its own, and no web page from elsewhere."""

import pytest
from tests.gateways.http.serving import Client, ask, serving

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
