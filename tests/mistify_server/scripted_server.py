"""A real server process with scripted workers, which prints its address, and its URL if it has one."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from mistify_server.worker.imports import quick_imports

with quick_imports():
    from mistify.wire.listening import Certificate
    from mistify_server.server import HTTP_OFF, ServerSettings, serve

parser = argparse.ArgumentParser()
parser.add_argument("--store", type=Path, required=True)
parser.add_argument("--root", type=Path, required=True)
parser.add_argument("--http", default=HTTP_OFF)
parser.add_argument("--token")
parser.add_argument("--database")
parser.add_argument("--join", action="store_true")
parser.add_argument("--lease", type=float, default=15.0)
parser.add_argument("--clock-off-by", type=float, default=0.0, metavar="SECONDS")
parser.add_argument("--certificate", type=Path, nargs=2)
parser.add_argument("worker", nargs="+")
arguments = parser.parse_args()
now, now_ns, off = time.time, time.time_ns, arguments.clock_off_by
time.time, time.time_ns = lambda: now() + off, lambda: now_ns() + int(off * 1e9)
settings = ServerSettings(
    store=arguments.store,
    database=arguments.database,
    join=arguments.join,
    lease_seconds=arguments.lease,
    listen="127.0.0.1:0",
    http=arguments.http,
    data_roots=[arguments.root],
    certificate=Certificate(*arguments.certificate) if arguments.certificate else None,
    token=arguments.token,
    worker=arguments.worker,
)
asyncio.run(serve(settings, lambda address, url: print(address, url or "", flush=True)))
assert "tensorflow" not in sys.modules
assert "keras" not in sys.modules
