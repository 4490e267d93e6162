"""Calls of an engine, and what its scripted workers have noted."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mistify.jobs.job import ProgressUpdate
from mistify_server.engines.base import TaskEngine
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task

Make = Callable[..., TaskEngine]
Until = Callable[[Callable[[], bool]], Any]


def ignore(_progress: ProgressUpdate) -> None:
    pass


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def pids(site: Any, kind: str = "adapt") -> list[int]:
    return [task["pid"] for task in site.tasks(kind)]


def submit(engine: TaskEngine, *tasks: Task) -> list[asyncio.Task[Result]]:
    return [asyncio.create_task(engine.run(task, ignore)) for task in tasks]
