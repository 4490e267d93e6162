"""Addresses of a server, with TLS or without."""

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

#: Of the schemes that browsers speak.
_PORTS = {"http": 80, "https": 443}

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")


@dataclass(frozen=True)
class Certificate:
    """Identity of a server: PEM files of its certificate chain and of its private key."""

    chain: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Return the certificate as gRPC takes it.

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
    """Bind a server to its address.

    Args:
        server: A gRPC server.
        address: `host:port`; port 0 takes a free one.
        certificate: For TLS; None to speak without.
        token: Secret that callers have to send.

    Returns:
        The address for callers, with the port that was assigned.

    Raises:
        MistifyError: The address cannot be bound, or must not without a token.
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
    """Return the host and the port of an address that a server may listen on.

    Raises:
        MistifyError: INVALID_CONFIG, it is no address; UNAUTHENTICATED, other machines can reach it and
            there is no token.
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
    """Return an origin as browsers send it: in lower case, without the port of its scheme.

    Raises:
        InvalidValue: It is none.
    """
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        raise InvalidValue(
            text,
            "an origin such as https://porting.example.org",
            "write scheme and host, and the port if it has one",
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
    """Check whether a host name means loopback addresses only."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except OSError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, f'got the host "{host}"; expected one of this machine; {error.strerror}'
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
                "stop that one or use another port (port 0 takes a free one)",
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
