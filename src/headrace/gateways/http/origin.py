"""Which requests a listener accepts, judged by headers that a web page cannot forge.

A web page can make its reader's browser send requests to this machine: under a name that the page's owner resolves to
127.0.0.1 (DNS rebinding, visible in Host), or to the address itself (visible in Origin and Sec-Fetch-Site). Nothing is
authenticated here, so both are refused before a route is chosen.

A link that leads here from another site is a visit: the browser shows the answer to its user, and the page never sees
it. A visit may look and must not change anything, and only the route knows which it does, so `check` reports a visit
and the connection asks the route. These count as visits too:

- Whatever no page of ours asked for (`Sec-Fetch-Site: none`). Users type an address seldom; a page of another site has
  a browser send the same by rules for prefetching, and so does a redirect behind an address that was typed.
- All that a browser sends without Origin and Sec-Fetch-Site (an old one, or any browser on plain HTTP to another
  machine): it does not tell links from images and scripts.
- What names a page of another site in Referer, whatever program sends it.

Programs other than browsers send no Origin, the Host that they connected to, and no browser's User-Agent.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from headrace.gateways.http.message import RefusedError

_LOCAL_SUFFIX = ".localhost"  # resolved to loopback and nowhere else (RFC 6761 section 6.3)
_KNOWN_MAX = 64
_PROGRAMS = ("PowerShell/", "(compatible; pycurl)")  # the second is Celery's, by kombu
_HERE = frozenset({"same-origin", "none"})
# How browsers name themselves, those in a terminal too.
_BROWSERS = ("Mozilla/", "Opera/", "Lynx/", "Links ", "ELinks/", "w3m/", "Dillo/", "NetSurf/")


class Hosts:
    """The names that a listener goes by. A loopback listener knows its local ones; any other takes every name unless
    it was told some."""

    def __init__(self, names: Iterable[str] = (), *, is_loopback: bool) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._is_loopback = is_loopback
        self._known: set[str] = set()  # authorities that were looked at before and are ours

    def check(self, headers: Mapping[str, str], *, authority: str | None = None) -> bool:
        """Refuse a request under a foreign name, or one that a foreign page made a browser send.

        Returns whether it may be a visit from another site.
        """
        host = headers.get("host")
        for name in (host, authority):
            if name is not None and name not in self._known and not self._learns(name):
                raise RefusedError(
                    421,
                    "unknown_host",
                    "this node does not go by the name in the Host header; use localhost or 127.0.0.1, or add the name "
                    "to http.hosts",
                )
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        if origin is not None:
            is_foreign = host is None or origin.partition("://")[2].lower() != host.lower()
        else:
            is_foreign = site is not None and site not in _HERE and headers.get("sec-fetch-dest") != "document"
        if is_foreign:
            raise RefusedError(
                403, "foreign_origin", "a web page of another origin may not talk to this node; use a program instead"
            )
        if origin is not None or site == "same-origin":
            return False
        return site is not None or is_browser(headers.get("user-agent", "")) or _is_elsewhere(headers, host)

    def _learns(self, authority: str) -> bool:
        is_ours = self._knows(authority)
        if is_ours and len(self._known) < _KNOWN_MAX:
            self._known.add(authority)
        return is_ours

    def _knows(self, authority: str) -> bool:
        name = _host_of(authority)
        if name in self._names:
            return True
        if not self._is_loopback:
            return not self._names
        if name == "localhost" or name.endswith(_LOCAL_SUFFIX):
            return True
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False


def is_browser(user_agent: str) -> bool:
    """Whether a User-Agent is a browser's. Those of some programs that run no pages begin like them."""
    return user_agent.startswith(_BROWSERS) and not any(name in user_agent for name in _PROGRAMS)


def _is_elsewhere(headers: Mapping[str, str], host: str | None) -> bool:
    """Whether a page of another origin led here, by its own address."""
    referrer = headers.get("referer")
    if referrer is None:
        return False
    return host is None or referrer.partition("://")[2].partition("/")[0].lower() != host.lower()


def _host_of(authority: str) -> str:
    """The name without its port; a last dot makes no other name."""
    text = authority.strip().lower()
    name, colon, port = text.rpartition(":")
    if colon and (port.isdigit() or not port) and (":" not in name or name.endswith("]")):
        text = name
    return text.removesuffix(".")
