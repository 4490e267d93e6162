"""Background work of the server."""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.server import reduce_garbage_collection, running_server
from mistify_server.store.sql.jobs import SqlJobStore

WaitUntil = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (MistifyError(ErrorCode.UNAVAILABLE, "the store is busy"), "unused uploads could not be removed: "),
        (ZeroDivisionError(), "unused uploads could not be removed because of an internal error"),
    ],
    ids=["busy", "internal"],
)
async def test_uploads_are_collected_although_the_first_attempt_failed(
    site: Any,
    wait_until: WaitUntil,
    error: Exception,
    reported: str,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [error]
    referenced = SqlJobStore.referenced_digests

    def failing_at_first(store: SqlJobStore) -> set[str]:
        if failures:
            raise failures.pop()
        return referenced(store)

    monkeypatch.setattr(SqlJobStore, "referenced_digests", failing_at_first)
    monkeypatch.setattr("mistify_server.server._COLLECTION_SECONDS", 0.01)
    old = site.store / "uploads" / "files" / "00" / ("0" * 64)
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    async with running_server(site.settings()):
        await wait_until(lambda: not old.exists())
    assert reported in caplog.text


async def test_an_internal_error_of_a_task_of_the_server_is_reported_at_once(
    site: Any,
    serving_at: Any,
    wait_until: Any,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mistify_server.server.keep_updated", broken)
    async with serving_at(site.settings()):
        await wait_until(lambda: "broken has ended because of an internal error" in caplog.text)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


class Cycle:
    """Refers to itself, like what is left of a call."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def server_garbage_collection() -> Iterator[None]:
    threshold = gc.get_threshold()
    reduce_garbage_collection()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.usefixtures("server_garbage_collection")
def test_what_calls_leave_in_cycles_is_released_after_some_thousands() -> None:
    for _ in range(30_000):
        Cycle()
    assert sum(isinstance(each, Cycle) for each in gc.get_objects()) < 12_000


async def test_the_server_waits_for_the_next_call_only_once(caller: Any) -> None:
    """gRPC subscribes to everything that it waits for again at each call."""
    await caller.page(1)
    waiting = [name for name in map(repr, asyncio.all_tasks()) if "_request_" in name]
    assert len(waiting) == 1, waiting
