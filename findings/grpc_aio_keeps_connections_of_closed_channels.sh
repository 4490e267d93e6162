#!/usr/bin/env bash
# A closed channel of grpc.aio keeps its connection as long as the program has a reference to a finished call.
#
# Expected: `await channel.close()`, or the end of `async with`, closes the connection, as in the synchronous API. The
# documentation says that it releases everything that the channel holds.
# Observed: with grpcio 1.85.3, the connection of a channel that was closed after its call had ended stays established
# until the call object is garbage. A local variable of a coroutine that sleeps suffices. A program that simulates
# devices, each with a short connection now and then, thereby fills the server with connections of closed channels, until
# the server refuses new ones. References to the channel do no harm, nor do calls of the synchronous API.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet grpcio==1.85.3 psutil==7.2.2
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import asyncio

import grpc
import psutil

CALLS = 20
OWN = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each channel


class AnyMethod(grpc.GenericRpcHandler):
    def service(self, details):
        async def answer(request, context):
            return b"answer"

        return grpc.unary_unary_rpc_method_handler(answer)


def established(port):
    """Count the server's connections."""
    connections = psutil.Process().net_connections("tcp")
    return sum(each.laddr.port == port and each.status == "ESTABLISHED" for each in connections)


async def settled(port, count):
    """Wait up to ten seconds for a number of connections; return the last number."""
    for _ in range(100):
        if established(port) == count:
            break
        await asyncio.sleep(0.1)
    return established(port)


async def calls(address, kept):
    """Make calls, each over a channel of its own that is closed; return references to channels or calls."""
    references = []
    for _ in range(CALLS):
        channel = grpc.aio.insecure_channel(address, OWN)
        call = channel.unary_unary("/any/method")(b"question")
        assert await call == b"answer" and call.done()
        await channel.close()
        references += {"channels": [channel], "calls": [call], "nothing": []}[kept]
    return references


def synchronous(address):
    """Do the same with the synchronous API; return references to the calls."""
    references = []
    for _ in range(CALLS):
        with grpc.insecure_channel(address, OWN) as channel:
            call = channel.unary_unary("/any/method").future(b"question")
            assert call.result() == b"answer"
        references.append(call)
    return references


async def main():
    print("grpcio", grpc.__version__)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([AnyMethod()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    found = {}
    for kept in ("nothing", "channels", "calls"):
        references = await calls(address, kept)
        found[kept] = await settled(port, CALLS if kept == "calls" else 0)
        print(f"connections after {CALLS} closed channels, with references to {kept}: {found[kept]}")
        del references
        found[kept, "released"] = await settled(port, 0)
    print("once the references are gone:", found["calls", "released"])
    references = await asyncio.to_thread(synchronous, address)
    found["synchronous"] = await settled(port, 0)
    print("with references to calls of the synchronous API:", found["synchronous"], len(references))
    await server.stop(None)
    assert (found["nothing"], found["channels"], found["synchronous"]) == (0, 0, 0)
    assert (found["calls"], found["calls", "released"]) == (CALLS, 0)


asyncio.run(main())
PYTHON
