"""The threads of a server, on which calls read the store and files."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

#: Number of threads, however few processors there are: digests of large files take minutes, and other calls
#: are to be answered meanwhile. The pool of connections to a database is larger.
THREADS: Final = 32


def use_enough_threads() -> None:
    """Have the running event loop use as many threads for `asyncio.to_thread` as a server needs.

    By default, it uses four more than there are processors.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "server"))
