"""Known models and data are not inspected again for each job."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mistify.v1 import porting_pb2 as pb

Config = Callable[..., dict[str, object]]


async def test_jobs_with_known_model_and_data_do_not_wait_for_a_worker(
    caller: Any, site: Any, make_config: Config
) -> None:
    """Many of them start while another job occupies the only worker."""
    (site.control / "hold-source").touch()
    await caller.submit([make_config("a", FLOP="0.5x")])
    jobs = await asyncio.gather(*(caller.submit([make_config("b", FLOP=f"0.{n}x")]) for n in range(2, 9)))
    assert len({job.id for job in jobs}) == 7
    assert len(site.tasks("inspect")) == 1
    (site.control / "hold-source").unlink()


async def test_only_changed_models_and_data_are_inspected(
    site: Any, serving_at: Any, make_config: Config
) -> None:
    async def submitted() -> int:
        async with serving_at(site.settings()) as caller:
            await caller.submit([make_config("a", FLOP="0.5x")])
        return len(site.tasks("inspect"))

    assert [await submitted(), await submitted()] == [1, 1]
    site.write("train.json", {"x": [1], "y": [1]})
    assert [await submitted(), await submitted()] == [2, 2]


async def test_data_that_change_while_the_server_runs_are_inspected_again(
    caller: Any, site: Any, make_config: Config
) -> None:
    await caller.submit([make_config("a", FLOP="0.5x")])
    site.write("train.json", {"x": [1], "y": [1]})
    await asyncio.gather(*(caller.submit([make_config("b", FLOP=f"0.{n}x")]) for n in range(2, 9)))
    assert len(site.tasks("inspect")) == 2


async def test_an_inspection_is_removed_with_its_files(caller: Any, site: Any, make_config: Config) -> None:
    """Removing a job also removes its files that are no longer needed."""
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    assert len(list((site.store / "inspections").iterdir())) == 1
    (site.root / "model.json").unlink()
    await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=job.id, now=True))
    assert list((site.store / "inspections").iterdir()) == []


async def test_servers_can_share_inspections(site: Any, serving_at: Any, make_config: Config) -> None:
    async def submitted(store: str) -> int:
        settings = replace(site.settings(inspections=site.root / "shared"), store=site.root / store)
        async with serving_at(settings) as caller:
            await caller.submit([make_config("a", FLOP="0.5x")])
        return len(site.tasks("inspect"))

    assert [await submitted("first"), await submitted("second")] == [1, 1]
