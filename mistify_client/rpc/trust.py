"""The certificates that a client trusts and presents, and whether a server uses TLS at all."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mistify.errors import MistifyError, Problem, invalid_config

#: The environment variable with the path of a PEM file of trusted certificates; `--ca` sets it for a command.
CA: Final = "MISTIFY_CA"

#: The environment variables with the paths of PEM files that prove who the client is; `--certificate` and
#: `--key` set them for a command.
CERTIFICATE: Final = "MISTIFY_CERTIFICATE"
KEY: Final = "MISTIFY_KEY"

_PEM: Final = b"-----BEGIN CERTIFICATE-----"

#: For each file of the client: its option, how it is called, and what it has to contain.
_OPTIONS: Final = {CERTIFICATE: "--certificate", KEY: "--key"}
_CONTENTS: Final = {CERTIFICATE: "this client's certificate", KEY: "its private key, unencrypted"}
_BEGINNINGS: Final = {CERTIFICATE: _PEM, KEY: b"PRIVATE KEY-----"}

#: The reasons of OpenSSL for which servers refuse a client without a certificate, in TLS 1.3 and 1.2.
_REFUSALS: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")

#: Timeout for the first TLS message of a server, in seconds.
_PROBE_SECONDS: Final = 2.0


def trusted_certificates() -> bytes | None:
    """Return the trusted authorities' certificates; None for gRPC's default list.

    Raises:
        MistifyError: INVALID_CONFIG, the file named by `CA` contains none.
    """
    path = os.environ.get(CA)
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _no_certificate(path, error.strerror or str(error)) from error
    if _PEM not in content:
        raise _no_certificate(path, "something else")
    return content


def own_certificate() -> tuple[bytes, bytes] | None:
    """Return the client's certificate chain and private key; None if it has none.

    Raises:
        MistifyError: INVALID_CONFIG, only one of `CERTIFICATE` and `KEY` is set, or a file cannot be used.
    """
    paths = {name: os.environ.get(name) for name in (CERTIFICATE, KEY)}
    if not any(paths.values()):
        return None
    chain, key = (_own_file(name, path) for name, path in paths.items())
    return chain, key


def _own_file(name: str, path: str | None) -> bytes:
    option = _OPTIONS[name]
    if not path:
        expected = "a PEM file, because the other one of certificate and key is given"
        problem = Problem(f"{option} (or {name})", "nothing", expected, "give both or neither")
        raise invalid_config([problem], "the connection")
    try:
        content = Path(path).read_bytes()
        value = "something else"
    except OSError as error:
        content, value = b"", error.strerror or str(error)
    if _BEGINNINGS[name] not in content:
        expected = f"a PEM file with {_CONTENTS[name]}"
        problem = Problem(f"{option} {path} (or {name})", value, expected, "name another file")
        raise invalid_config([problem], "the connection")
    return content


def speaks_tls(address: str) -> bool:
    """Check whether the program that listens at `host:port`, whatever it is, uses TLS.

    Args:
        address: `host:port` without `tls://`.
    """
    with suppress(OSError), _probed(address):
        return True
    return False


def asks_for_certificate(address: str) -> bool:
    """Check whether the server at `host:port` refuses clients that present no certificate.

    Args:
        address: `host:port` without `tls://`.
    """
    try:
        with _probed(address) as connection:
            # With TLS 1.3, a server refuses after the handshake. gRPC then closes the connection without a
            # word; servers that are content send the settings of HTTP/2 first.
            return not connection.recv(1)
    except ssl.SSLError as error:
        return any(reason in (error.reason or "") for reason in _REFUSALS)
    except OSError:
        return False


@contextmanager
def _probed(address: str) -> Iterator[ssl.SSLSocket]:
    """Connect with TLS, without checking the server's certificate and without presenting one.

    Raises:
        OSError: The program does not answer, or does not use TLS.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    target = host.removeprefix("[").removesuffix("]"), int(port)
    with socket.create_connection(target, _PROBE_SECONDS) as plain, context.wrap_socket(plain) as encrypted:
        yield encrypted


def _no_certificate(path: str, value: str) -> MistifyError:
    expected = "a PEM file with the certificate of an authority"
    fix = "name another file, or none to trust gRPC's default authorities"
    return invalid_config([Problem(f"--ca {path} (or {CA})", value, expected, fix)], "the connection")
