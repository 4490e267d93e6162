"""The addresses that a server listens on, with or without TLS."""

import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.wire.address import TLS

_LAST_PORT = 65535

#: The options for the files of a certificate.
_FILES = "--tls-certificate", "--tls-key"


@dataclass(frozen=True)
class Certificate:
    """The identity of a server: PEM files with its certificate chain and private key.

    Attributes:
        client_authority: PEM file with the authorities of which clients must present a certificate; None if
            they need none.
    """

    chain: Path
    key: Path
    client_authority: Path | None = None

    @classmethod
    def of(
        cls, chain: Path | None, key: Path | None, client_authority: Path | None = None
    ) -> "Certificate | None":
        """Return the certificate in the files of a command's options; None if none is given.

        Raises:
            MistifyError: INVALID_CONFIG, some are missing.
        """
        if chain is not None and key is not None:
            return cls(chain, key, client_authority)
        if chain is None and key is None:
            if client_authority is None:
                return None
            expected = "a PEM file, because only TLS has certificates of clients"
            fix = "give it, or no --tls-client-ca"
            problems = [Problem(name, "nothing", expected, fix) for name in _FILES]
            raise invalid_config(problems, "the command line")
        missing, present = _FILES if chain is None else _FILES[::-1]
        problem = Problem(
            missing, "nothing", f"a PEM file, because {present} is given", "give both or neither"
        )
        raise invalid_config([problem], "the command line")

    def credentials(self) -> grpc.ServerCredentials:
        """Return the certificate as gRPC credentials, which are renewed when the files have changed.

        Connections use the previous certificate while the files cannot be used, for example while they are
        being replaced.

        Raises:
            MistifyError: NOT_FOUND, a file cannot be read.
        """
        try:
            renewed = _RenewedCertificate(self)
        except OSError as error:
            message = f"the file {error.filename} cannot be read: {error.strerror}; give a PEM file"
            raise MistifyError(ErrorCode.NOT_FOUND, message) from error
        return grpc.dynamic_ssl_server_credentials(
            renewed.configuration,
            renewed,  # type: ignore[arg-type]
            require_client_authentication=self.client_authority is not None,
        )

    def contents(self) -> tuple[bytes, bytes, bytes | None]:
        """Return the contents of chain, key and authorities of clients.

        Raises:
            OSError: A file cannot be read.
        """
        authority = None if self.client_authority is None else self.client_authority.read_bytes()
        return self.chain.read_bytes(), self.key.read_bytes(), authority


class _RenewedCertificate:
    """Returns a certificate to gRPC, which asks for it at each new connection, if its files have changed.

    gRPC replaces the certificate in use each time that it gets one, and aborts the process if many
    connections are made meanwhile. So it gets each one once.
    """

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._contents = certificate.contents()
        self._changing = Lock()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a new certificate; None if there is none, or if a file cannot be read."""
        with self._changing:
            try:
                contents = self._certificate.contents()
            except OSError:
                return None
            if contents == self._contents:
                return None
            self._contents = contents
            return self.configuration

    @property
    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The certificate as last read."""
        chain, key, authority = self._contents
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authority)


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


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f'got the address "{listen}"; expected HOST:PORT; for example 127.0.0.1:7465',
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
