"""Small depthwise, grouped and separable networks are planned and ported without crashing workers."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import keras
import pytest

from mistify.errors import MistifyError
from mistify.jobs.job import Goal, GoalState, Job
from mistify_client.rpc.porting import PortingClient
from tests.support.separable_networks import mobilenet_like, separable_network, small_xception, write_images
from tests.support.servers import server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

#: Limits at which each network is planned; the last one may be unreachable.
NETWORKS = {
    "mobilenet": mobilenet_like,
    **{str(seed): partial(separable_network, seed) for seed in range(20)},
}
LIMITS = ("0.5x", "0.35x", "0.2x")

SETTINGS = {"source_steps": 0, "adapt_steps": 0, "tune_steps": 1, "max_steps": 10}


class Site:
    """A server, the directory of its models, and the log, which shows whether a worker has died."""

    def __init__(self, base: Path, client: PortingClient) -> None:
        self.base = base
        self.client = client

    def goal(self, name: str, model: keras.Model, **limits: str) -> dict[str, Any]:
        directory = self.base / name
        directory.mkdir(exist_ok=True)
        model.save(directory / "model.keras")
        data = write_images(model.input_shape[1:], directory)
        return {
            "id": "-".join((name, *limits.values())),
            "model": str(directory / "model.keras"),
            "dataset": {part: str(directory / file) for part, file in data.items()},
            "algorithm": {"name": "MorphNet", "config": SETTINGS},
            "adaptation_goal": limits,
        }

    def ported(self, goals: list[dict[str, Any]]) -> Job:
        job = self.client.submit(json.dumps(goals), "")
        for _ in self.client.watch(job.id):
            pass
        return self.client.job(job.id)

    def deaths(self) -> list[str]:
        log = (self.base / "log").read_text().splitlines()
        return [line for line in log if "attempt" in line]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    base = tmp_path_factory.mktemp("separable")
    with (
        (base / "log").open("w") as log,
        server(base / "store", "--data-root", base, "--slots", str(len(LIMITS)), log=log) as (address, _),
        PortingClient(address) as client,
    ):
        yield Site(base, client)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_planned_at_each_latency_limit(site: Site, name: str) -> None:
    """All run in parallel, each in its own worker."""
    model = NETWORKS[name]()
    goals = [site.goal(name, model, latency=limit) for limit in LIMITS]
    with ThreadPoolExecutor(len(LIMITS)) as pool:
        plans = list(pool.map(site.client.plan, (json.dumps([goal]) for goal in goals)))
    assert [bool(plan.batches) is not bool(plan.out_of_reach) for plan in plans] == [True] * len(LIMITS)
    assert site.deaths() == []


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_ported_at_its_latency_limits(site: Site, name: str) -> None:
    """Except unreachable limits: latencies are a few microseconds, and are measured each time."""
    model = NETWORKS[name]()
    goals = [site.goal(name, model, latency=limit) for limit in LIMITS]
    ported = within_reach(site, goals)
    assert {goal.id: goal.reason for goal in ported if not goal.files} == {}
    assert site.deaths() == []


def within_reach(site: Site, goals: list[dict[str, Any]]) -> tuple[Goal, ...]:
    """Port the goals that the server does not refuse as unreachable."""
    while goals:
        try:
            return site.ported(goals).goals
        except MistifyError as error:
            places = {f"[{number}].adaptation_goal.latency": number for number in range(len(goals))}
            refused = {places[problem.place] for problem in error.problems}
            goals = [goal for number, goal in enumerate(goals) if number not in refused]
    return ()


@pytest.mark.parametrize("seed", range(3))
def test_a_small_xception_is_planned_and_ported(site: Site, seed: int) -> None:
    goal = site.goal(f"xception-{seed}", small_xception(seed), FLOP="0.5x")
    assert site.client.plan(json.dumps([goal])).batches
    (ported,) = site.ported([goal]).goals
    assert ported.state is GoalState.MET, ported.reason
    assert site.deaths() == []
