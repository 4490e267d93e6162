"""The default addresses of a server, and the origins of its proxies."""

import re

from mistify.parsing.validation import InvalidValue

DEFAULT_LISTEN = "127.0.0.1:7465"
DEFAULT_HTTP = "127.0.0.1:7466"

#: Default port of each URL scheme.
_PORTS = {"http": 80, "https": 443}

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")


def checked_origin(text: str) -> str:
    """Return an origin as browsers send it: in lower case, without the scheme's default port.

    Raises:
        InvalidValue: The text is not an origin.
    """
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        raise InvalidValue(
            text,
            "an origin such as https://porting.example.org",
            "write the scheme, the host and, if needed, the port",
        )
    scheme, host, port = match.groups()
    return f"{scheme}://{host}" + (f":{port}" if port and int(port) != _PORTS[scheme] else "")
