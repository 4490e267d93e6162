"""Refusing unsuitable goals that are added to a job."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mistify.errors import ErrorCode
from tests.mistify_server.outcomes import failure

Config = Callable[..., dict[str, object]]


class Refused(NamedTuple):
    """A change to a suitable config, and the problem expected in the refusal."""

    changes: dict[str, object]
    place: str
    value: str
    expected: str


NANO = {"name": "jetson-nano", "compute_power": 1.0, "memory_bandwidth": 1.0}


@pytest.mark.parametrize(
    "refused",
    [
        Refused({"model": "other.json"}, "model", '"other.json"', '"model.json", as in the job'),
        Refused(
            {"dataset": {"train": "test.json", "test": "test.json"}},
            "dataset",
            '{"train": "test.json", "test": "test.json"}',
            '{"test": "test.json", "train": "train.json"}, as in the job',
        ),
        Refused(
            {"algorithm": {"name": "chamnet"}},
            "algorithm",
            '{"name": "chamnet", "config": {}}',
            '{"config": {}, "name": "morphnet"}, as in the job',
        ),
        Refused(
            {"algorithm": {"name": "morphnet", "config": {"seed": 1}}},
            "algorithm",
            '{"name": "morphnet", "config": {"seed": 1}}',
            '{"config": {}, "name": "morphnet"}, as in the job',
        ),
        Refused({"id": "HALF"}, "id", '"HALF"', "an id that no goal of the job"),
        Refused(
            {"adaptation_goal": {"FLOP": "0.001x"}},
            "adaptation_goal.FLOP",
            '"0.001x" (10 multiply-adds)',
            "at least 100 multiply-adds",
        ),
        Refused(
            {"hardware": {**NANO, "compute_power": "1GFLOP/s", "memory_bandwidth": "1GB/s"}},
            "hardware",
            '"1 GFLOP/s and 1 GB/s for jetson-nano"',
            "470 GFLOP/s and 25 GB/s for jetson-nano, as in the job",
        ),
        Refused({"adaptation_goal": {"FLOP": "5 parsec"}}, "adaptation_goal.FLOP", '"5 parsec"', ""),
    ],
)
async def test_goals_that_do_not_suit_the_job_are_refused(
    caller: Any, make_config: Config, refused: Refused
) -> None:
    on_nano = {**make_config("half", FLOP="0.5x"), "hardware": "jetson-nano"}
    job = await caller.submit([on_nano])
    before = await caller.finished(job.id)
    fine, wrong = make_config("fine", FLOP="0.4x"), {**make_config("wrong", FLOP="0.3x"), **refused.changes}
    error = await failure(caller.add(job.id, [fine, wrong], key="k"))
    assert error.code is ErrorCode.INVALID_CONFIG
    (problem,) = error.problems
    assert (problem.place, problem.value) == (f"[1].{refused.place}", refused.value)
    assert refused.expected in problem.expected
    assert problem.fix
    assert await caller.job(job.id) == before
    assert len((await caller.add(job.id, [fine], key="k")).goals) == 2


async def test_all_problems_of_added_goals_are_reported_at_once(
    caller: Any, site: Any, make_config: Config
) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    later = [make_config("A", FLOP="0.4x"), make_config("b", model="x", FLOP="0.3x")]
    error = await failure(caller.add(job.id, later))
    assert [problem.place for problem in error.problems] == ["[0].id", "[1].model"]
    for text in ("[{", "[]"):
        assert (await failure(caller.add(job.id, text))).code is ErrorCode.INVALID_CONFIG
    for key in ("", "k"):
        assert (await failure(caller.add("nowhere", later, key))).code is ErrorCode.NOT_FOUND


async def test_branches_are_refused_if_the_model_has_an_input_of_that_name(
    caller: Any, site: Any, make_config: Config
) -> None:
    network = json.loads((site.root / "model.json").read_text())
    site.write("model.json", {**network, "inputs": ["image", "branch"]})
    branched = {**make_config("b", FLOP="0.4x"), "branches": {"count": 2}}
    refused = await failure(caller.submit([branched]))
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    for error in (refused, await failure(caller.add(job.id, [branched]))):
        (problem,) = error.problems
        assert problem.place == "[0].branches"
        assert 'rename the input "branch"' in problem.fix
    assert [goal.id for goal in (await caller.finished(job.id)).goals] == ["a"]
