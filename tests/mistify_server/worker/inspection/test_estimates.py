from typing import Any

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.structure import analyse, residual_blocks
from executors.synthesis.inputs import passes
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS
from mistify.errors import MistifyError
from mistify_server.planning.forecast.scaling import CostScaling
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.inspection.estimates import estimates_of, with_measurements
from mistify_server.worker.params import params_of
from tests.mistify_server.digits_tasks import recipe

layers = keras.layers


def task(algorithm: str = "auto", train: str = "a", **config: object) -> InspectTask:
    return InspectTask(
        recipe=recipe(
            ModelSource(builtin="m"),
            data=DataSource(train=train, test="b"),
            algorithm=algorithm,
            settings=config,
            hardware={},
        )
    )


def residual(seed: int = 0, width: int = 8) -> keras.Model:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(width, 3, padding="same")(inputs)
    x = layers.Add()([x, layers.Conv2D(width, 3, padding="same")(x)])
    return keras.Model(inputs, layers.Dense(3, "softmax")(layers.GlobalAveragePooling2D()(x)))


def dense() -> keras.Model:
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(3, "softmax")(layers.Dense(6, "relu")(inputs)))


def attentive() -> keras.Model:
    inputs = keras.Input((4, 8))
    x = layers.Conv1D(8, 1)(inputs)
    x = layers.Flatten()(layers.MultiHeadAttention(2, 4)(x, x))
    return keras.Model(inputs, layers.Dense(3, "softmax")(x))


def test_auto_chooses_among_the_automatic_algorithms() -> None:
    profiles = estimates_of(analyse(residual()), task(tune_steps=70), ()).profiles
    assert set(profiles) == {"morphnet", "chamnet", "nested"}
    assert {profile.tune_steps for profile in profiles.values()} == {70}
    assert min(profiles["chamnet"].preparation) > 0
    assert profiles["chamnet"].needs_preparation
    assert min(profiles["morphnet"].preparation) > 0
    assert not profiles["morphnet"].needs_preparation


def test_a_named_algorithm_is_the_only_choice_even_if_not_automatic() -> None:
    assert set(estimates_of(analyse(dense()), task("uniform"), ()).profiles) == {"uniform"}


def test_profiles_derive_their_steps_from_the_distance() -> None:
    """MorphNet cuts at least a fifth of the costs at once: three cuts for a halving, at most eight."""
    estimates = estimates_of(analyse(dense()), task(adapt_steps=80, tune_steps=5, max_steps=70), ())
    morphnet = estimates.profiles["morphnet"]
    assert [morphnet.steps(distance) for distance in (0.0, 0.25, 1.0, 2.0, 8.0, 50.0)] == [
        5, 15, 45, 70, 70, 70,
    ]  # fmt: skip
    assert morphnet.steps(1.0, rounds=3) == 55


def test_preparation_steps_are_derived_from_the_distance_to_the_tightest_limits() -> None:
    """Nested networks take 1,200 steps per factor of about four, and none for a separate goal."""
    nested = estimates_of(analyse(dense()), task(), ()).profiles["nested"]
    assert [nested.preparation_steps(distance) for distance in (0.0, 1.0, 2.0, 4.0, 6.0)] == [
        1_200, 1_200, 1_200, 2_400, 3_600,
    ]  # fmt: skip
    assert (nested.steps(3.0), nested.shared_steps, nested.least_path) == (0, 300, 32)


def test_nothing_is_prepared_for_a_model_without_replaceable_blocks() -> None:
    def preparing(model: keras.Model) -> tuple[int, ...]:
        adaptivenet = task("adaptivenet", distil_steps=30, path_steps=20)
        return estimates_of(analyse(model), adaptivenet, ()).profiles["adaptivenet"].preparation

    assert set(preparing(residual())) == {50}
    frozen = residual()
    frozen.layers[2].trainable = False
    assert preparing(frozen) == preparing(dense()) == ()


def test_features_identify_networks() -> None:
    def features(model: keras.Model) -> Any:
        return estimates_of(analyse(model), task(), ()).features

    first = features(residual())
    assert features(residual()) == first
    assert features(residual(seed=1)).model != first.model
    assert (first.kind, first.blocks) == ("convolutional", len(residual_blocks(analyse(residual()).graph)))
    assert first.blocks == 1
    assert (features(dense()).kind, features(attentive()).kind) == ("dense", "transformer")


def test_costs_are_estimated_from_one_unit_per_group_to_four_times_the_source() -> None:
    structure = analyse(residual(width=8))
    scaled = estimates_of(structure, task(), ()).scaled
    least = costs_of(structure.network(dict.fromkeys(structure.groups, 1)))
    assert scaled[0] == least
    assert 3 < scaled[-1][FLOPS] / structure.network().flops < 4
    scaling = CostScaling(scaled, costs_of(structure.network()))
    assert scaling.costs(scaling.whole) == pytest.approx(costs_of(structure.network()))


def test_the_source_is_not_tuned_on_generated_data() -> None:
    assert estimates_of(analyse(dense()), task(train="generated:10"), ()).source_steps == 0
    assert estimates_of(analyse(dense()), task(source_steps=7), ()).source_steps == 7


def test_generating_data_takes_as_long_as_training_on_as_many_examples() -> None:
    estimates = estimates_of(analyse(dense()), task(train="generated:500", batch_size=50), ())
    assert estimates.generating == passes(500) / 50 > 10
    assert estimates_of(analyse(dense()), task(), ()).generating == 0


def test_the_error_for_a_setting_of_one_algorithm_says_to_name_it() -> None:
    with pytest.raises(MistifyError) as raised:
        params_of(task(threshold=0.1, cuts=2, sede=1, seed=3).recipe)
    problems = {problem.place: problem for problem in raised.value.problems}
    assert "belongs to morphnet" in problems["algorithm.config.threshold"].expected
    assert '"name": "morphnet"' in problems["algorithm.config.threshold"].fix
    assert "chamnet and crowdhmt and morphnet" in problems["algorithm.config.cuts"].expected
    assert problems["algorithm.config.sede"].fix == 'did you mean "seed"?'
    assert len(problems) == 3


def test_a_metric_undefined_on_the_sample_is_unknown() -> None:
    """An area under a curve requires two classes, but the sample may contain only one."""
    inputs = keras.Input((4,), name="x")
    heads = [layers.Dense(2, "softmax", name=name)(inputs) for name in ("rare", "common")]
    model, rng = keras.Model(inputs, heads), np.random.default_rng(0)
    targets = {"rare": np.zeros(20, int), "common": np.arange(20) % 2}
    data = Dataset({"x": rng.normal(size=(20, 4)).astype(np.float32)}, targets)
    settings = DataSettings(metric=Metric.ROC_AUC, metrics={"rare": Metric.ROC_AUC})
    setup = TrainingSetup(data, data, None, TrainingParams(), settings)
    estimates = estimates_of(analyse(model), task(), ())
    measured = with_measurements(estimates, Trainer(model, setup, 0), setup, ["accuracy"])
    predicted = model.predict(data.inputs["x"], verbose=0)[1].argmax(axis=1)
    right = float((predicted == targets["common"]).mean())
    assert measured.accuracy is None
    assert measured.output_scores == (OutputScore("common", Metric.ACCURACY, right),)


def test_the_loss_of_an_answer_is_measured_unless_an_output_has_figures() -> None:
    inputs = keras.Input((4,), name="x")
    model, rng = keras.Model(inputs, layers.Dense(1, "sigmoid", name="y")(inputs)), np.random.default_rng(0)
    x, answers = rng.normal(size=(20, 4)).astype(np.float32), np.arange(20)[:, None] % 2
    probabilities = model.predict(x, verbose=0)
    expected = -np.log(np.where(answers == 1, probabilities, 1 - probabilities)).mean()
    for targets, metric, nats in (
        (answers, Metric.ACCURACY, pytest.approx(expected, rel=1e-4)),
        (answers.astype(np.float32), Metric.MSE, None),
    ):
        data = Dataset({"x": x}, {"y": targets})
        setup = TrainingSetup(data, data, None, TrainingParams(), DataSettings(metric=metric))
        estimates = estimates_of(analyse(model), task(), ())
        measured = with_measurements(estimates, Trainer(model, setup, 0), setup, ["accuracy"])
        assert measured.nats == nats
