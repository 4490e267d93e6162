"""The server of a single command: `python -m mistify_server.embedded --store DIR`.

The command's user waits for it, so a worker, which takes seconds to import TensorFlow, starts before this
process imports the rest of the server. It serves gRPC alone, on a free port of the loopback interface, and
stops when standard input is closed.
"""

import argparse
import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path

from mistify.errors import MistifyError
from mistify.files.places import cache_directory, make_files_private
from mistify.tokens import read_token
from mistify_server.engines.opening import open_engine
from mistify_server.file_descriptors import raise_descriptor_limit
from mistify_server.stopping import stop_requested
from mistify_server.store.lock import locked_store
from mistify_server.threads import use_enough_threads
from mistify_server.tracing.opening import open_traces


def main() -> None:
    """Serve until standard input is closed, SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--data-root", type=Path, action="append", default=[])
    parser.add_argument("--resume", action="store_true", help="continue the unfinished jobs of the store")
    parser.add_argument("--porting", action="store_true", help="expect jobs or plans, whose code may run")
    make_files_private()
    try:
        asyncio.run(_serve(parser.parse_args()))
    except MistifyError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code.exit_code)


async def _serve(options: argparse.Namespace) -> None:
    raise_descriptor_limit()
    use_enough_threads()
    requested = stop_requested(with_stdin=True)
    with locked_store(options.store):
        async with open_traces() as traces, open_engine("local", options.store, traces=traces) as engine:
            if options.porting:
                engine.start_worker()
            # In a thread, because the event loop starts the worker.
            await asyncio.to_thread(import_module, "mistify_server.server")
            from mistify_server.server import (  # noqa: PLC0415
                ServerSettings,
                reduce_garbage_collection,
                serving_with,
            )
            from mistify_server.store.directory import locked_backend  # noqa: PLC0415
            from mistify_server.telemetry.logs import LogFormat, set_up_log  # noqa: PLC0415

            set_up_log(LogFormat.TEXT)
            settings = ServerSettings(
                store=options.store,
                listen="127.0.0.1:0",
                data_roots=tuple(options.data_root),
                # Code that a config names runs as the user who wrote the config: nobody else has the token.
                allow_code=options.porting,
                token=read_token(options.token_file),
                resume=options.resume,
                inspections=shared_inspections(),
            )
            with locked_backend(options.store) as backend:
                async with serving_with(engine, settings, backend, traces) as (address, _):
                    reduce_garbage_collection()
                    print(f"listening on {address}", flush=True)
                    await requested.wait()


def shared_inspections() -> Path | None:
    """Return the directory of the inspections of all of the user's commands; None if it cannot be used."""
    directory = cache_directory() / "inspections"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None


if __name__ == "__main__":
    main()
