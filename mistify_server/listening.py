"""The addresses that a server listens on, with or without TLS."""

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify.wire.address import TLS

DEFAULT_LISTEN = "127.0.0.1:7465"
DEFAULT_HTTP = "127.0.0.1:7466"

_LAST_PORT = 65535

#: Default port of each URL scheme.
_PORTS = {"http": 80, "https": 443}

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")


@dataclass(frozen=True)
class Certificate:
    """The identity of a server: PEM files with its certificate chain and private key."""

    chain: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Return the certificate as gRPC credentials.

        Raises:
            MistifyError: NOT_FOUND, a file cannot be read.
        """
        try:
            return grpc.ssl_server_credentials([(self.key.read_bytes(), self.chain.read_bytes())])
        except OSError as error:
            message = f"the file {error.filename} cannot be read: {error.strerror}; give a PEM file"
            raise MistifyError(ErrorCode.NOT_FOUND, message) from error


def listen(
    server: Any, address: str, *, certificate: Certificate | None = None, token: str | None = None
) -> str:
    """Bind a server to an address.

    Args:
        server: A gRPC server.
        address: `host:port`; port 0 picks a free port.
        certificate: Certificate for TLS; None for a server without TLS.
        token: Secret that callers must send.

    Returns:
        The address for callers, with the assigned port.

    Raises:
        MistifyError: The address cannot be bound, or needs a token.
    """
    host, port = checked_address(address, token)
    shown = f"[{host}]" if ":" in host else host
    credentials = None if certificate is None else certificate.credentials()
    try:
        if credentials is None:
            return f"{shown}:{server.add_insecure_port(f'{shown}:{port}')}"
        return f"{TLS}{shown}:{server.add_secure_port(f'{shown}:{port}', credentials)}"
    except RuntimeError as error:
        raise _unusable(host, port, certificate) from error


def checked_address(address: str, token: str | None) -> tuple[str, int]:
    """Return host and port of an address that a server may listen on.

    Raises:
        MistifyError: INVALID_CONFIG, the address is malformed; UNAUTHENTICATED, other machines can reach it
            and there is no token.
    """
    host, port = _host_and_port(address)
    if token is None and not _loopback(host):
        raise MistifyError(
            ErrorCode.UNAUTHENTICATED,
            f"got the address {address}, which other machines can reach; expected a loopback address "
            "such as 127.0.0.1, or a token; add --token-file FILE",
        )
    return host, port


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


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the address "{listen}"; expected HOST:PORT; for example {DEFAULT_LISTEN}',
        )
    return host, int(port)


def _loopback(host: str) -> bool:
    """Check whether a host name resolves to loopback addresses only."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except OSError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the host "{host}"; expected a name or address of this machine; {error.strerror}',
        ) from error
    return all(
        ipaddress.ip_address(str(address[4][0]).partition("%")[0]).is_loopback for address in addresses
    )


def _unusable(host: str, port: int, certificate: Certificate | None) -> MistifyError:
    """Find out why an address could not be bound."""
    reason = "it cannot be bound"
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return MistifyError(
                ErrorCode.ADDRESS_IN_USE,
                f"the address {host}:{port} is in use by another program; "
                "stop that program or use another port (port 0 picks a free one)",
            )
        reason = error.strerror or reason
    else:
        if certificate is not None:
            return MistifyError(
                ErrorCode.INVALID_CONFIG,
                f"the certificate {certificate.chain} cannot be used with the key {certificate.key}; "
                "expected PEM files that belong together",
            )
    return MistifyError(ErrorCode.UNAVAILABLE, f"cannot listen on {host}:{port}: {reason}")
