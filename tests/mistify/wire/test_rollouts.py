from dataclasses import replace

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import (
    InstallationPhase,
    Instruction,
    NewRollout,
    Rollout,
    RolloutCriteria,
    RolloutFigures,
    RolloutOutcome,
    RolloutProgress,
    RolloutState,
    StageProgress,
    WantedPackage,
)
from mistify.wire import devices, rollouts
from tests.support.fleets import after, device

CRITERIA = RolloutCriteria(60.0, 3, 0.25, 1.5, 0.5)
ROLLOUT = Rollout(
    id="r",
    job_id="j",
    goal_id="phone-2",
    digest="0" * 64,
    package="phone",
    devices="kitchen-*",
    stages=(0.1, 1.0),
    criteria=CRITERIA,
    state=RolloutState.ROLLED_BACK,
    stage=1,
    since_unix_ms=1_790_000_000_001,
    reason="by ci",
    created_unix_ms=1_790_000_000_000,
    started_by="ci",
)


@pytest.mark.parametrize("criteria", [CRITERIA, RolloutCriteria(latency=None, agreement=None)])
def test_a_new_roll_out_survives_the_wire(criteria):
    new = NewRollout("j", "phone-2", "phone", "kitchen-*", (0.1, 1.0), criteria)
    assert rollouts.new_rollout_from_proto(rollouts.new_rollout_to_proto(new)) == new


@pytest.mark.parametrize("figures", [RolloutFigures(), RolloutFigures(0.0, 1.1, 0.9)])
def test_progress_survives_the_wire(figures):
    stages = (StageProgress(0.1, 4, 1, 2, 1),)
    rollout = replace(ROLLOUT, outcome=RolloutOutcome(stages, figures))
    progress = RolloutProgress(rollout, stages, figures, 3)
    assert rollouts.progress_from_proto(rollouts.progress_to_proto(progress)) == progress
    progress = RolloutProgress(
        ROLLOUT, (StageProgress(0.1, 4, 1, 2, 1), StageProgress(1.0, 9, 0, 0, 0)), figures
    )
    assert rollouts.progress_from_proto(rollouts.progress_to_proto(progress)) == progress


def test_a_state_of_another_version_is_refused():
    message = rollouts.progress_to_proto(RolloutProgress(ROLLOUT, (), RolloutFigures()))
    message.rollout.state = "waiting"
    with pytest.raises(MistifyError, match='the rollout state "waiting"') as caught:
        rollouts.progress_from_proto(message)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize(
    "instruction",
    [Instruction(), Instruction(withdrawn="r"), Instruction(WantedPackage("r", "j", "phone-2", "0" * 64))],
)
def test_an_instruction_survives_the_wire(instruction):
    assert devices.instruction_from_proto(devices.instruction_to_proto(instruction)) == instruction


def test_the_roll_outs_of_a_device_survive_the_wire():
    plain = device("kitchen-7")
    for status in (
        plain,
        after(plain, "r", slowdown=1.5, agreement=0.75),
        after(plain, "r", InstallationPhase.FAILED, slowdown=None, reason="damaged"),
        replace(plain, rollouts=None),
    ):
        assert devices.status_from_proto(devices.status_to_proto(status)) == status
