#!/usr/bin/env bash
# gRPC for Python replaces the status of a failed call by RESOURCE_EXHAUSTED if the server's text is long.
#
# Expected: a call that a server aborts with INVALID_ARGUMENT and a text of any length fails with this status, and with the
# text or its beginning.
# Observed: texts travel in the metadata. grpcio 1.85.3 accepts 8 KiB of them, refuses more than 16 KiB, and in between
# refuses at random: the same call with a text of 12,000 letters has one status now and another a moment later. Code that
# depends on the status retries, or reports that a quota is used up; the text is lost. The server is not told.
# Larger `grpc.max_metadata_size` and `grpc.absolute_max_metadata_size` of the client's channel keep the text.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet grpcio==1.85.3
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc


def fail(request, context):
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "x" * int(request))


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(fail)


server = grpc.server(ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Service(),))
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
print("grpcio", grpc.__version__)


def statuses(letters, **options):
    """Return how often each status is the result of 200 calls that fail with a text."""
    counts = Counter()
    with grpc.insecure_channel(address, options=[(f"grpc.{key}", value) for key, value in options.items()]) as channel:
        call = channel.unary_unary("/service/fail")
        for _ in range(200):
            try:
                call(str(letters).encode())
            except grpc.RpcError as error:
                assert error.code() is not grpc.StatusCode.INVALID_ARGUMENT or len(error.details()) == letters
                counts[error.code().name] += 1
    print(f"{letters} letters, {options}: {dict(counts)}")
    return set(counts)


limits = {"max_metadata_size": 2**20, "absolute_max_metadata_size": 2**20}
assert statuses(7_000) == {"INVALID_ARGUMENT"}
assert statuses(12_000) == {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
assert statuses(20_000) == {"RESOURCE_EXHAUSTED"}
assert statuses(20_000, **limits) == {"INVALID_ARGUMENT"}
server.stop(None)
PYTHON
