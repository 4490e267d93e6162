#!/usr/bin/env bash
# A gRPC server that asks for certificates of its clients refuses a client without one, and does not say why.
#
# Expected: with TLS 1.3, the server sends the alert "certificate required" (RFC 8446, 6.2), so that the client can name
# the cause, as with servers that use OpenSSL by way of Python's ssl module.
# Observed: grpcio 1.85.3 closes the connection without any alert. Its own clients get UNAVAILABLE with "Socket closed",
# as from a server that is just restarting, and clients that retry on UNAVAILABLE retry forever.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet grpcio==1.85.3 trustme==1.2.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON' 2>/dev/null
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import trustme

authority, clients = trustme.CA(), trustme.CA()
certificate = authority.issue_cert("127.0.0.1")
chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
print("grpcio", grpc.__version__)


def heard(port):
    """Connect without a certificate, and return what the server says then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as encrypted:
        version = encrypted.version()
        try:
            return version, repr(encrypted.recv(1))
        except ssl.SSLError as error:
            return version, error.reason


server = grpc.server(ThreadPoolExecutor(1))
credentials = grpc.ssl_server_credentials(
    [(certificate.private_key_pem.bytes(), chain)],
    root_certificates=clients.cert_pem.bytes(),
    require_client_auth=True,
)
port = server.add_secure_port("127.0.0.1:0", credentials)
server.start()
of_grpc = heard(port)
trusting = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
try:
    grpc.secure_channel(f"127.0.0.1:{port}", trusting).unary_unary("/any/call")(b"", timeout=5)
except grpc.RpcError as error:
    code, details = error.code().name, error.details()
server.stop(None)

listening = socket.create_server(("127.0.0.1", 0))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
certificate.configure_cert(context)
context.load_verify_locations(cadata=clients.cert_pem.bytes().decode())
context.verify_mode = ssl.CERT_REQUIRED


def serve():
    plain, _ = listening.accept()
    try:
        context.wrap_socket(plain, server_side=True)
    except ssl.SSLError:
        pass


thread = threading.Thread(target=serve)
thread.start()
of_openssl = heard(listening.getsockname()[1])
thread.join()
print("a server of Python's ssl module:", *of_openssl)
print("a server of gRPC:", *of_grpc)
print("a client of gRPC:", code, details)
assert of_openssl == ("TLSv1.3", "TLSV13_ALERT_CERTIFICATE_REQUIRED")
assert of_grpc == ("TLSv1.3", "b''")
assert code == "UNAVAILABLE" and "Socket closed" in details
PYTHON
