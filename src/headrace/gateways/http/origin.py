"""Whom a listener answers to, by the names that browsers cannot forge.

A web page can make the browser of whoever reads it send requests to this machine: under a name of its own that it lets
resolve to 127.0.0.1 (DNS rebinding, seen by the Host header), or to the address itself (seen by Origin and
Sec-Fetch-Site). Neither is wanted where nobody is authenticated, so both are refused before any route is looked for.
Programs other than browsers send no Origin, and a Host that they connected to.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from headrace.gateways.http.message import RefusedError

_LOCAL_SUFFIX = ".localhost"  # resolved to loopback and nowhere else (RFC 6761 section 6.3)
_KNOWN_MAX = 64
_ELSEWHERE = frozenset({"cross-site", "same-site"})


class Hosts:
    """The names that a listener goes by. A loopback listener knows its local ones; any other takes every name unless
    it was told some."""

    def __init__(self, names: Iterable[str] = (), *, is_loopback: bool) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._is_loopback = is_loopback
        self._known: set[str] = set()  # authorities that were looked at before and are ours

    def check(self, headers: Mapping[str, str], *, authority: str | None = None) -> None:
        """Refuse a request under a foreign name, or one that a foreign page made a browser send."""
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
        if origin is not None:
            is_foreign = host is None or origin.partition("://")[2].lower() != host.lower()
        else:
            is_foreign = headers.get("sec-fetch-site") in _ELSEWHERE and headers.get("sec-fetch-dest") != "document"
        if is_foreign:
            raise RefusedError(
                403, "foreign_origin", "a web page of another origin may not talk to this node; use a program instead"
            )

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


def _host_of(authority: str) -> str:
    """The name without its port; a last dot makes no other name."""
    text = authority.strip().lower()
    name, colon, port = text.rpartition(":")
    if colon and (port.isdigit() or not port) and (":" not in name or name.endswith("]")):
        text = name
    return text.removesuffix(".")
