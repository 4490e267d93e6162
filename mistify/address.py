"""Where servers are: `host:port`, or `tls://host:port` for one that proves to be itself."""

from typing import Final

TLS: Final = "tls://"


def is_address(given: str) -> bool:
    """Whether a text is the address of a server."""
    host, _, port = given.removeprefix(TLS).rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16
