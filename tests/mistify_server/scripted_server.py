"""A real server process whose workers are scripted; it prints its address."""

import argparse
import asyncio
import sys
from pathlib import Path

from mistify_server.server import ServerSettings, serve

parser = argparse.ArgumentParser()
parser.add_argument("--store", type=Path, required=True)
parser.add_argument("--root", type=Path, required=True)
parser.add_argument("worker", nargs="+")
arguments = parser.parse_args()
settings = ServerSettings(
    store=arguments.store, listen="127.0.0.1:0", data_roots=[arguments.root], worker=arguments.worker
)
asyncio.run(serve(settings, lambda address, url: print(address, flush=True)))
assert "tensorflow" not in sys.modules
assert "keras" not in sys.modules
