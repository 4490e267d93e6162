"""The results of the comparison of algorithms."""

import json

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.executors import ALGORITHMS, SHARES, Descent, configs_of, descent_of, figures_of, main
from executors.contract.registry import algorithms
from mistify.config.algorithm import AUTO
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.config.reading import collective_batches, parse_batch
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.tasks.sources import DataSource, ModelSource


def test_results_are_medians_over_the_seeds():
    descents = [
        Descent({share: base + place for place, share in enumerate(SHARES)}, 900, seconds, ())
        for base, seconds in ((70.0, 9.0), (60.0, 5.0), (64.0, 6.0))
    ]
    figures = figures_of("resnet8", {"morphnet": descents})
    assert figures["resnet8_morphnet_at_0.75"] == 64.0
    assert figures["resnet8_morphnet_at_0.125"] == 67.0
    assert figures["resnet8_morphnet_mean"] == 65.5
    assert figures["resnet8_morphnet_seconds"] == 6.0
    assert figures["resnet8_morphnet_steps"] == 900


def test_configs_differ_only_in_the_algorithm():
    model, files = ModelSource(path="tuned.keras"), DataSource(train="train.npz", test="test.npz")
    of_auto, of_uniform = (configs_of(name, model, files, {"seed": 2}, 100) for name in (AUTO, "uniform"))

    assert [config["adaptation_goal"] for config in of_auto] == [{"FLOP": f"{share}x"} for share in SHARES]
    assert of_auto[0]["algorithm"] == {
        "name": AUTO,
        "config": {"seed": 2, "source_steps": 0, "adapt_steps": 40, "tune_steps": 60},
    }
    for one, other in zip(of_auto, of_uniform, strict=True):
        assert one | {"algorithm": None} == other | {"algorithm": None}
        assert one["algorithm"]["config"] == other["algorithm"]["config"]


@pytest.mark.parametrize("metric", [None, Metric.EXACT_MATCH])
def test_configs_are_goals_of_one_batch_with_float32_packages(metric):
    model = ModelSource(path="tuned.keras")
    files = DataSource(train="train.npz", test="test.npz", settings=DataSettings(metric=metric))

    configs = parse_batch(json.dumps(configs_of(AUTO, model, files, {"learning_rate": 0.001}, 100)))

    (batch,) = collective_batches(configs)
    assert len(batch.configs) == len(SHARES)
    assert {config.quantization.precision for config in configs} == {Quantization.NONE}
    assert {config.dataset.metric for config in configs} == {metric}


def job(accuracies):
    goals = tuple(
        Goal(
            id=f"{share:g}", batch=0, spec=PackageSpec({}), accuracy=accuracy, algorithm="uniform", steps=100
        )
        for share, accuracy in zip(SHARES, accuracies, strict=True)
    )
    return Job("job", JobState.DONE, goals, 0, seconds=5.0)


def test_the_result_of_a_job_is_that_of_its_packages():
    descent = descent_of(job([0.8, 0.7, 0.6, 0.5]))

    assert descent.accuracy == pytest.approx({0.75: 80.0, 0.5: 70.0, 0.25: 60.0, 0.125: 50.0})
    assert descent[1:] == (400, 5.0, ("uniform",) * 4)


def test_a_job_without_all_packages_is_an_error():
    with pytest.raises(RuntimeError, match="job is done"):
        descent_of(job([0.8, 0.7, 0.6, None]))


def test_every_algorithm_is_compared():
    assert set(ALGORITHMS) <= algorithms().keys()


def test_the_benchmark_is_skipped_without_data():
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
