"""Freed memory goes back to the operating system."""

import ctypes
import subprocess
import sys

import pytest

#: Frees 99 of 100 small pieces of memory, among which the others stay; its second pause ends it.
_FREE = """
import asyncio
from contextlib import suppress
import psutil
from mistify_server.memory import keep_trimmed

def megabytes():
    return psutil.Process().memory_info().rss / 1e6

async def sleep(seconds):
    if pauses:
        raise asyncio.CancelledError
    pauses.append(seconds)

pauses, pieces = [], [bytes(1_000) for _ in range(100_000)]
kept = pieces[::100]
del pieces
freed = megabytes()
with suppress(asyncio.CancelledError):
    asyncio.run(keep_trimmed(sleep))
print(freed, megabytes())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_memory_between_pieces_in_use_is_returned() -> None:
    answer = subprocess.run([sys.executable, "-c", _FREE], capture_output=True, text=True, check=True)
    freed, trimmed = map(float, answer.stdout.split())
    assert freed - trimmed > 80  # of 100 MB
