"""Addresses of servers: `host:port`, or `tls://host:port` for a server with a certificate."""

import ipaddress
from typing import Final

TLS: Final = "tls://"

#: What is expected of an address, for errors.
EXPECTED: Final = "host:port of its gRPC listener, such as 127.0.0.1:7465, or tls://host:port"


def is_address(text: str) -> bool:
    """Check whether a text is the address of a server."""
    host, _, port = text.removeprefix(TLS).rpartition(":")
    return bool(host) and "/" not in host and port.isdecimal() and 0 < int(port) < 2**16


def is_on_this_machine(address: str) -> bool:
    """Check whether the address of a server is a loopback address, without name resolution."""
    host = address.removeprefix(TLS).rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
