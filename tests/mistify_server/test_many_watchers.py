"""More concurrent watchers than gRPC queues by default."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mistify.v1 import porting_pb2 as pb

WATCHERS = 2_000


@pytest.mark.slow
async def test_none_of_many_watchers_is_disconnected(
    caller: Any, make_config: Callable[..., dict[str, object]]
) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    request = pb.WatchJobRequest(job_id=job.id, so_far=True)

    async def watch() -> int:
        return len([event async for event in caller.stub.WatchJob(request)])

    counts = await asyncio.gather(*(watch() for _ in range(WATCHERS)))
    assert set(counts) == {len(await caller.events(job.id))}
