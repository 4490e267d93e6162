"""The certificates that a client trusts, and whether a server uses TLS at all."""

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from mistify.errors import MistifyError, Problem, invalid_config

#: The environment variable with the path of a PEM file of trusted certificates; `--ca` sets it for a command.
CA: Final = "MISTIFY_CA"

_PEM: Final = b"-----BEGIN CERTIFICATE-----"

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


def speaks_tls(address: str) -> bool:
    """Check whether the program that listens at `host:port`, whatever it is, uses TLS.

    Args:
        address: `host:port` without `tls://`.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    target = host.removeprefix("[").removesuffix("]"), int(port)
    with (
        suppress(OSError),
        socket.create_connection(target, _PROBE_SECONDS) as plain,
        context.wrap_socket(plain),
    ):
        return True
    return False


def _no_certificate(path: str, value: str) -> MistifyError:
    expected = "a PEM file with the certificate of an authority"
    fix = "name another file, or none to trust gRPC's default authorities"
    return invalid_config([Problem(f"--ca {path} (or {CA})", value, expected, fix)], "the connection")
