"""A web page of another site, in a real browser, against a node on loopback: it reads nothing and changes nothing."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from tests.support.browser import Browser, NavigatedError, chromium
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

DEADLINE_S = 30.0
MESSAGES = 3


class _Site(BaseHTTPRequestHandler):
    """A site of nobody's: an empty page at every address, and one address that redirects to what its query says."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", dict(parse_qsl(address.query))["to"])
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title><body></body>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(DEADLINE_S)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as started:
        yield started


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("browser-node") / "data") as started:
        yield started


def ask(node: NodeProcess, method: str, target: str, value: Any = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)) as connection:
        body = None if value is None else json.dumps(value)
        connection.request(method, target, body, {} if body is None else {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def counts(node: NodeProcess, queue: str) -> tuple[int, int, int, int]:
    status, body = ask(node, "GET", f"/queues/{queue}")
    assert status == 200, body
    found = json.loads(body)["counts"]
    return found["sent"], found["visible"], found["leased"], found["purged"]


def answered(node: NodeProcess, statuses: str) -> int:
    """How many requests the node has answered like that."""
    _, text = ask(node, "GET", "/metrics")
    found = re.findall(rf'headrace_http_requests_total\{{route="[^"]*",status="(?:{statuses})"\}} (\d+)', text.decode())
    return sum(map(int, found))


# Each is a script that makes the browser ask for an address. The page is left where it is, or thrown away afterwards.
WAYS = {
    "link": "click('a', {href: to})",
    "link without a referrer": "click('a', {href: to, rel: 'noreferrer', referrerPolicy: 'no-referrer'})",
    "link to a new window": "click('a', {href: to, target: '_blank', rel: 'noopener'})",
    "window.open": "window.open(to) && 1",
    "location": "location.href = to",
    "meta refresh": "add('meta', {httpEquiv: 'refresh', content: '0;url=' + to})",
    "redirect": "location.href = '/redirect?to=' + encodeURIComponent(to)",
    "form by GET": "submit('GET')",
    "image": "add('img', {src: to})",
    "script": "add('script', {src: to})",
    "style sheet": "add('link', {rel: 'stylesheet', href: to})",
    "prefetch": "add('link', {rel: 'prefetch', href: to})",
    "frame": "add('iframe', {src: to})",
    "sandboxed frame": "add('iframe', {src: to, sandbox: 'allow-scripts'})",
    "object": "add('object', {data: to})",
    "video": "add('video', {src: to, preload: 'auto'})",
    "prefetch by rule": "rule('prefetch')",
    "prerender by rule": "rule('prerender')",
    "web socket": "new WebSocket(to.replace('http:', 'ws:')) && 1",
    "event source": "new EventSource(to) && 1",
    "fetch": "fetch(to).catch(() => 1)",
    "fetch without CORS": "fetch(to, {mode: 'no-cors'}).catch(() => 1)",
    "fetch that redirects": "fetch('/redirect?to=' + encodeURIComponent(to), {mode: 'no-cors'}).catch(() => 1)",
}
WAYS_TO_POST = {
    "form by POST": "submit('POST')",
    "form as text": "submit('POST', 'text/plain')",
    "form in a new window": "submit('POST', '', '_blank')",
    "fetch": "fetch(to, {method: 'POST', mode: 'no-cors', body: '{\"message\": 1}'}).catch(() => 1)",
    "beacon": "navigator.sendBeacon(to, new Blob(['{\"message\": 1}'], {type: 'text/plain'}))",
}
SCRIPT = """(() => {
    const to = %s;
    const add = (tag, values) => {
        const element = Object.assign(document.createElement(tag), values);
        document.body.append(element);
        return element;
    };
    const click = (tag, values) => { add(tag, values).click(); return 1; };
    const rule = kind => {
        const text = JSON.stringify({[kind]: [{source: 'list', urls: [to]}]});
        add('script', {type: 'speculationrules', text});
        return 1;
    };
    const submit = (method, enctype = '', target = '') => {
        const form = Object.assign(document.createElement('form'), {method, enctype, target, action: to.split('?')[0]});
        for (const [name, value] of new URL(to).searchParams)
            form.append(Object.assign(document.createElement('input'), {name, value}));
        document.body.append(form);
        form.submit();
        return 1;
    };
    return %s;
})()"""


@pytest.mark.parametrize("origin", ["127.0.0.1", "page.example"], ids=["another port", "another site"])
def test_a_page_of_another_site_acts_on_nothing(browser: Browser, node: NodeProcess, site: str, origin: str) -> None:
    queue = f"orders-{origin.replace('.', '-')}"
    for number in range(MESSAGES):
        assert ask(node, "POST", f"/queues/{queue}/messages", {"message": number})[0] == 201
    untouched = (MESSAGES, MESSAGES, 0, 0)

    def attack(target: str, way: str) -> None:
        """Let a page try, and see that the node was asked and refused it."""
        before = answered(node, "403|421")
        page = browser.open(f"http://{origin}:{site.rpartition(':')[2]}/")
        with suppress(NavigatedError):
            page.run(SCRIPT % (json.dumps(f"http://{node.http}{target}"), way))
        wait_until(lambda: answered(node, "403|421") > before, deadline_s=DEADLINE_S, what=f"{way} is refused")
        browser.close(page)
        assert counts(node, queue) == untouched, way

    for way in WAYS.values():
        attack(f"/queues/{queue}/messages?batch_size=1000&lease=43200", way)
    for operation in ("ReceiveMessage", "PurgeQueue", "DeleteQueue", "SendMessage&MessageBody=x"):
        attack(f"/000000000000/{queue}?Action={operation}&VisibilityTimeout=43200", WAYS["link"])
        attack(f"/?Action={operation}&QueueUrl=http://{node.http}/000000000000/{queue}", WAYS["window.open"])
    # An address of the site that was typed, and redirects.
    for target in (f"/queues/{queue}/messages?lease=600", f"/?Action=PurgeQueue&QueueName={queue}"):
        refused = answered(node, "403|421")
        to = quote(f"http://{node.http}{target}", safe="")
        browser.close(browser.open(f"http://{origin}:{site.rpartition(':')[2]}/redirect?to={to}"))
        assert answered(node, "403|421") > refused
        assert counts(node, queue) == untouched, target
    for way in WAYS_TO_POST.values():
        attack(f"/queues/{queue}/messages", way)
        attack(f"/000000000000/{queue}?Action=DeleteQueue", way)


def test_what_the_user_does_and_a_link_that_only_looks_are_served(
    browser: Browser, node: NodeProcess, site: str
) -> None:
    """The other half: the requests above do reach the node, and are refused for where they come from."""
    ask(node, "POST", "/queues/own/messages", {"message": "mine"})
    linked = browser.open(f"http://{site}/")
    linked.run(SCRIPT % (json.dumps(f"http://{node.http}/queues/own"), WAYS["link"]))
    linked.wait(f"location.host == '{node.http}' && document.readyState == 'complete'")
    assert '"visible":1' in linked.text
    # The node's own page acts. An address that was typed cannot be told from what a page had the browser prefetch.
    assert linked.run("fetch('/queues/own').then(answer => answer.status)") == 200
    assert "foreign_visit" in browser.open(f"http://{node.http}/queues/own/messages?lease=600").text
    assert counts(node, "own")[2] == 0
    own = browser.open(f"http://{node.http}/queues/own")
    assert "visible" in own.text
    assert own.run("fetch('/queues/own/messages?lease=600').then(answer => answer.text())").count("mine") == 1
    assert counts(node, "own")[2] == 1


def test_a_page_whose_name_leads_to_the_node_reads_nothing(browser: Browser, node: NodeProcess) -> None:
    """DNS rebinding: to the browser the node is the page's own site."""
    ask(node, "POST", "/queues/rebound/messages", {"message": "secret"})
    page = browser.open(f"http://page.example:{node.http.rpartition(':')[2]}/queues/rebound/messages")
    assert "unknown_host" in page.text
    assert page.run("fetch('/queues/rebound').then(answer => answer.status)") == 421
    assert counts(node, "rebound")[:3] == (1, 1, 0)
