from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import GoalState, JobState
from mistify_server.engines.pooled_engine import DEADLINES


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        (13, "13 parameters bring bad luck"),
        (17, "ValueError: 17 parameters are odd"),
        (19, "the loss became nan in step 3"),
        (23, "the adapt task was stopped because it took more than 20 s"),
    ],
)
async def test_a_failed_edge_fails_its_subtree_but_not_the_job(
    caller: Any,
    make_config: Callable[..., dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    params: int,
    reason: str,
) -> None:
    if params == 23:  # an edge that never ends, while others have no time limit
        monkeypatch.setitem(DEADLINES, "adapt", 20.0)
    job = await caller.submit(
        [
            make_config("bad", num_of_params=params),
            make_config("below", num_of_params=params - 1),
            make_config("deep", num_of_params=params - 2),
            make_config("above", num_of_params=params + 1),
            make_config("beside", FLOP="0.5x"),
        ]
    )
    job = await caller.finished(job.id)
    reasons = {goal.id: goal.reason for goal in job.goals if goal.state is GoalState.FAILED}
    because = f"the goal bad, from which it is adapted, failed: {reason}"
    assert reasons == {"bad": reason, "below": because, "deep": because}
    assert {goal.id for goal in job.goals if goal.state is GoalState.MET} == {"above", "beside"}
    assert job.spent["failed"] > 0
    assert job.spent["training"] == 0.5 + 2 * 1.5
    assert job.state is JobState.DONE


@pytest.mark.parametrize(("collapses", "outcome"), [(1, (0.8, 200)), (2, (0.1, 100))])
async def test_a_collapsed_network_is_adapted_again_from_the_source(
    caller: Any,
    site: Any,
    make_config: Callable[..., dict[str, object]],
    collapses: int,
    outcome: tuple[float, int],
) -> None:
    (site.control / "collapse-5000").write_text(str(collapses))
    job = await caller.submit([make_config("wide", FLOP="0.8x"), make_config("narrow", FLOP="0.5x")])
    goals = {goal.id: goal for goal in (await caller.finished(job.id)).goals}
    assert (goals["wide"].accuracy, goals["wide"].steps) == (0.8, 100)
    assert (goals["narrow"].accuracy, goals["narrow"].steps) == outcome
    wide, narrow, again = site.tasks("adapt")
    assert narrow["budget"] == again["budget"] == {"flops": 5_000}
    assert again["parent"] == wide["parent"] != narrow["parent"]


async def test_goals_share_a_converted_file_if_enough_have_the_same_precision(
    caller: Any, site: Any, make_config: Callable[..., dict[str, object]]
) -> None:
    precisions = {"0.8x": "none", "0.7x": "none", "0.6x": "float16", "0.5x": "none"}
    job = await caller.submit(
        [
            {**make_config(f"at-{share}", FLOP=share), "quantization": precision}
            for share, precision in precisions.items()
        ]
    )
    await caller.finished(job.id)
    shares = {task["goal_id"]: task["shares_conversion"] for task in site.tasks("package")}
    assert shares == {f"at-{share}": precision == "none" for share, precision in precisions.items()}
