"""A host and a port, as people write them."""

import ipaddress
from typing import NamedTuple

PORT_MAX = 65535
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost may resolve to anything, so it is not."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface: good to listen on, useless to connect to."""
        return self.host in _WILDCARDS


def parse_address(text: str) -> Address:
    """Read `host:port` or `[v6]:port`. A ValueError says what is wrong."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} has no port; write host:port, for example 127.0.0.1:9092")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is ambiguous; write an IPv6 address in brackets, for example [::1]:9092")
    if not host:
        raise ValueError(
            f"{text!r} has no host; write 127.0.0.1{text.strip()}, or 0.0.0.0{text.strip()} for everywhere"
        )
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} has no valid port; a port is a number from 0 to {PORT_MAX}")
    return Address(host, int(port))
