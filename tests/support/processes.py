"""The children of processes, in a list that others may end while it is read."""

import os
from contextlib import suppress

import psutil


def children_that_run(module: str) -> list[int]:
    """Return the ids of this process's living children that run a module."""
    running = []
    for child in psutil.Process(os.getpid()).children():
        with suppress(psutil.NoSuchProcess):
            if module in child.cmdline():
                running.append(child.pid)
    return running
