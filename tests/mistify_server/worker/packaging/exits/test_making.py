"""Exits of packages: their figures, and the reasons for packages without any."""

import json
from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.metric import Metric
from mistify.config.package.exits import ExitsConfig
from mistify.costs.budget import FLOPS
from mistify.errors import MistifyError
from mistify.package.exits import EXIT_STAGES, EXITS, ExitStore
from mistify.package.manifest import NETWORK
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from mistify_server.worker.packaging.exits import making
from tests.data.make_exits import digits, trained
from tests.mistify_server.worker.packaging.networks import package_task, packaged

LOSSES = (0.02, 0.1)
TASK = package_task(exits=ExitsConfig(loss=LOSSES))


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def model(data):
    return trained(data[0])


@pytest.fixture(scope="module")
def setup(data):
    train, validation, _ = data
    return TrainingSetup(train, validation, None, TrainingParams(batch_size=32))


@pytest.fixture(scope="module")
def package(model, setup, data):
    return packaged(model, TASK, setup, data[2])


def store_of(package):
    return ExitStore.model_validate_json(package.files[EXITS])


def test_a_package_has_stages_of_its_network(package):
    store = store_of(package)
    assert store.network == package.manifest.files[NETWORK].sha256
    assert {EXITS, EXIT_STAGES} <= package.manifest.files.keys()
    assert (store.output, store.kind, store.stages[-1].layer) == ("digit", "softmax", "digit")
    costs, times = ([getattr(stage, of) for stage in store.stages] for of in ("multiply_adds", "latency_ms"))
    assert costs == sorted(costs)
    assert times == sorted(times)


def test_rates_give_the_expected_costs(package):
    store = store_of(package)
    for choice in store.choices:
        for figure in ("multiply_adds", "latency_ms"):
            stages = [getattr(stage, figure) for stage in store.stages]
            assert getattr(choice, figure) == pytest.approx(np.dot(choice.rates, stages))
        assert choice.bound <= choice.loss


def test_a_larger_loss_saves_more(package):
    few, many = store_of(package).choices
    assert (few.loss, many.loss) == LOSSES
    assert few.threshold > many.threshold
    assert few.multiply_adds > many.multiply_adds


def test_the_goal_names_rates_savings_and_accuracies(package):
    note = package.manifest.note
    assert "has exits: within a loss of 2%, they answer" in note
    assert "within a loss of 10%, they answer" in note
    assert f"{100 * store_of(package).choices[1].accuracy:.3g}% against" in note


def test_heads_are_only_behind_the_layers_that_a_goal_names(model, setup, data):
    task = package_task(exits=ExitsConfig(loss=(0.1,), after=("relu_2",)))
    (first, last) = store_of(packaged(model, task, setup, data[2])).stages
    assert (first.layer, last.layer) == ("relu_2", "digit")


def test_a_layer_that_no_head_can_follow_is_the_reason(model, setup, data):
    task = package_task(exits=ExitsConfig(after=("relu_2", "conv_2", "relu_9")))
    note = packaged(model, task, setup, data[2]).manifest.note
    assert "has no exits: no head can follow conv_2 and relu_9, only relu_" in note


def test_a_package_without_exits_in_its_goal_has_none(model, setup, data):
    files = packaged(model, package_task(), setup, data[2]).files
    assert not {EXITS, EXIT_STAGES} & files.keys()


def test_too_few_examples_for_a_small_loss_are_the_reason(model, setup, data):
    few = replace(setup, validation=data[1].subset(np.arange(40)))
    package = packaged(model, package_task(exits=ExitsConfig(loss=(0.001,))), few, data[2])
    assert EXITS not in package.files
    assert (
        "has no exits: within a loss of 0.1%, no confidence is safe according to the 40 validation examples"
        in package.manifest.note
    )


def test_a_better_branch_of_the_same_cost_is_the_reason(model, setup, data):
    """A branch at a tenth of the cost, which pretends to be small, is as accurate."""
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    branches = Branches((), (BranchNetwork(0.1, twin, {FLOPS: 1e4}), BranchNetwork(1.0, model, {FLOPS: 1e5})))
    package = packaged(model, TASK, setup, data[2], branches=branches)
    assert EXITS not in package.files
    assert "within a loss of 2%, branch 0 is as good at the same cost" in package.manifest.note
    expensive = replace(branches.networks[0], costs={FLOPS: 2e5})
    package = packaged(
        model, TASK, setup, data[2], branches=replace(branches, networks=(expensive, branches.networks[1]))
    )
    assert EXITS in package.files


def test_exits_that_save_nothing_are_the_reason(model, setup, data, monkeypatch):
    monkeypatch.setattr("mistify_server.worker.packaging.exits.choosing._LEAST_SAVED", 1.0)
    note = packaged(model, TASK, setup, data[2]).manifest.note
    assert "has no exits: within a loss of 2%, they save " in note


def scored_by(metric):
    """Return the task with a metric for its goal."""
    recipe = TASK.recipe
    settings = recipe.data.settings.model_copy(update={"metric": metric})
    scored = recipe.data.model_copy(update={"settings": settings})
    return TASK.model_copy(update={"recipe": recipe.model_copy(update={"data": scored})})


def test_another_metric_is_the_reason(model, setup, data):
    note = packaged(model, scored_by(Metric.BALANCED_ACCURACY), setup, data[2]).manifest.note
    assert "the goal is scored by balanced accuracy" in note


def test_outputs_that_are_not_classes_are_the_reason(setup, data):
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(4, 3)(inputs)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(x))
    figures = keras.Model(inputs, keras.layers.Dense(1, name="digit")(x))
    parts = [
        Dataset(part.inputs, {"digit": part.targets["digit"][:, None].astype(np.float32)}) for part in data
    ]
    own = replace(setup, train=parts[0], validation=parts[1])
    note = packaged(figures, scored_by(Metric.MSE), own, parts[2]).manifest.note
    assert "has no exits: a head needs a network with a single output, one of several classes" in note


def test_a_network_without_places_for_heads_is_the_reason(setup, data):
    inputs = keras.Input((8, 8, 1), name="image")
    outputs = keras.layers.Dense(10, "softmax", name="digit")(keras.layers.Flatten()(inputs))
    note = packaged(keras.Model(inputs, outputs), TASK, setup, data[2]).manifest.note
    assert "has no exits: its data pass through a single image or vector nowhere" in note


def test_stages_that_differ_from_the_network_are_no_package(model, setup, data, monkeypatch):
    convert = making.convert_exits

    def wrong(stages, *others):
        last = stages[-1]
        last.set_weights([1.5 * weight for weight in last.get_weights()])
        return convert(stages, *others)

    monkeypatch.setattr(making, "convert_exits", wrong)
    with pytest.raises(MistifyError, match="the stages of its exits differ from its network by"):
        packaged(model, TASK, setup, data[2])


def test_exits_are_described_in_plain_json(package):
    content = json.loads(package.files[EXITS])
    assert content["format_version"] == 1
    assert [each["loss"] for each in content["choices"]] == list(LOSSES)
    figures = {
        "threshold",
        "bound",
        "rates",
        "multiply_adds",
        "latency_ms",
        "validation_accuracy",
        "accuracy",
    }
    assert content["choices"][0].keys() == {"loss", *figures}
