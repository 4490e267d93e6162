"""Work that goes on although its caller has been cancelled."""

import asyncio
import gc

import pytest

from mistify_server.jobs.store_writer import completed


async def cancel_before_an_error() -> None:
    started, may_fail = asyncio.Event(), asyncio.Event()

    async def failing() -> None:
        started.set()
        await may_fail.wait()
        raise OSError("the disk is full")

    caller = asyncio.create_task(completed(failing()))
    await started.wait()
    caller.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_an_error_after_a_cancellation_is_not_logged_as_one_that_nobody_has_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cancel_before_an_error()
    await asyncio.sleep(0)  # the event loop lets go of it
    gc.collect()
    assert not caplog.records
