"""The pace multiplies the numbers of training steps of settings and profiles."""

import pytest

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.contract.params import Params, parse_params
from executors.contract.profile import AlgorithmProfile, unprepared
from mistify.errors import MistifyError


@pytest.mark.parametrize(("pace", "factor"), [(0.5, 0.5), (2.0, 2.0), (1.0, 1.0)])
def test_all_numbers_of_steps_are_multiplied_and_nothing_else(pace, factor) -> None:
    params = AdaptiveNetParams(
        source_steps=100, adapt_steps=40, tune_steps=0, max_steps=1000, distil_steps=60, path_steps=80,
        batch_size=7, schedule_interval=11, time="10min",
    )  # fmt: skip
    paced = params.paced(pace, 3).model_dump()
    steps = {"source_steps": 100, "adapt_steps": 40, "max_steps": 1000, "distil_steps": 60, "path_steps": 80}
    expected = {name: factor * value for name, value in steps.items()} | {"source_steps": 300}
    assert paced == {**params.model_dump(), **expected, "time": None}


def test_only_the_settings_of_the_config_count_as_given() -> None:
    assert Params(tune_steps=10, seed=3).paced(0.5, 0.5).model_fields_set == {"tune_steps", "seed"}


def test_steps_do_not_vanish() -> None:
    params = Params(source_steps=10, adapt_steps=20, tune_steps=0).paced(1 / 64, 1 / 64)
    assert (params.source_steps, params.adapt_steps, params.tune_steps) == (1, 1, 0)


@pytest.mark.parametrize("pace", [0.25, 3.0])
def test_the_profile_of_paced_settings_is_the_paced_profile(pace) -> None:
    params = Params(adapt_steps=80, tune_steps=120, max_steps=400)
    assert unprepared(params.paced(pace, pace), None) == unprepared(params, None).paced(pace)


def test_a_profile_keeps_figures_that_are_no_steps_of_the_settings() -> None:
    profile = AlgorithmProfile(
        adaptation=(0, 10), preparation=(20, 40), shared_steps=8, tune_steps=6, max_steps=30,
        edge_overhead=150, preparation_step=1.5, least_path=8,
    )  # fmt: skip
    changes = {
        "adaptation": (0, 5),
        "preparation": (10, 20),
        "shared_steps": 4,
        "tune_steps": 3,
        "max_steps": 15,
    }
    assert profile.paced(0.5) == profile.model_copy(update=changes)


@pytest.mark.parametrize(
    ("time", "seconds"), [("10min", 600), ("10m", 600), ("1.5h", 5400), ("45s", 45), (90, 90), ("90", 90)]
)
def test_a_time_is_read_in_seconds(time, seconds) -> None:
    assert parse_params(Params, {"time": time}).time == seconds


@pytest.mark.parametrize("time", ["10x", "0s", -1, "soon", "3ms", [1]])
def test_a_wrong_time_is_refused_with_its_place(time) -> None:
    with pytest.raises(MistifyError) as caught:
        parse_params(Params, {"time": time})
    (problem,) = caught.value.problems
    assert problem.place == "algorithm.config.time"
    assert 'a time such as "10min"' in problem.expected
