"""What `factory.classes` makes of both sides' networks."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from benchmarks.factory import class_networks, classes
from benchmarks.factory.class_networks import (
    SHARE,
    TASKS,
    cut_accuracies,
    held_out,
    share_of,
    slice_accuracies,
    slice_of,
)
from benchmarks.factory.classes import TARGETS, Compared
from benchmarks.harness.run import EXIT_SKIPPED, run
from benchmarks.harness.worker import FILES
from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.class_tasks import ClassTasks
from executors.algorithms.nnfactory.supernet import Supernet
from executors.data import Dataset
from executors.structure import analyse
from executors.structure.edits.outputs import narrow_outputs
from executors.structure.signature import signature_of
from executors.training.evaluation import evaluate
from mistify.config.data.dataset import DataSettings
from mistify.scenarios.quality import Quality, measured_limits

layers = keras.layers

COMPARED = Compared(
    unseen=np.array([True, False, False, False]),
    slices=np.array([70.0, 80.0, 90.0, 70.0]),
    untuned=np.array([75.0, 79.0, 91.0, 70.0]),
    whole=np.array([90.0, 91.0, 92.0, 93.0]),
    tuned={0: 78.0, 2: 94.0},
    multiply_adds=np.array([0.2, 0.24, 0.21, 0.22]),
    costs={
        "untuned_multiply_adds": 0.25,
        "latency": 0.4,
        "untuned_latency": 0.5,
        "slice_ms": 20.0,
        "tuned_seconds": 10.0,
        "time_share": 0.002,
    },
)


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 2), name="image")
    x = layers.Conv2D(48, 3, activation="relu", padding="same")(image)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 1)(x))
    return keras.Model(image, layers.Dense(10, "softmax", name="class")(x))


@pytest.fixture(scope="module")
def test_data():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(200, 4, 4, 2)).astype(np.float32)
    return Dataset({"image": images}, {"class": np.arange(200) % 10})


@pytest.fixture(scope="module")
def supernet(network, test_data):
    tasks = ClassTasks(test_data, signature_of(network), DataSettings())
    limits = measured_limits(0.2)
    quality = Quality(tasks=("0, 1",), limits=limits, scores=(limits,))
    shape = AssemblerShape(10, 8, 1, modulate=True)
    return Supernet(analyse(network), shape, tasks.space, quality, classes=tasks.classes)


def test_the_figures_tell_trained_and_unseen_tasks_apart():
    figures = COMPARED.figures
    assert figures["known"] == 80
    assert figures["unseen"] == 70
    assert figures["untuned_known"] == 80
    assert figures["known_above"] == pytest.approx(1 / 3)
    assert figures["unseen_above"] == 0
    assert figures["tuned"] == 86
    assert figures["of_tuned"] == 80
    assert figures["below_tuned"] == 6
    assert figures["most_multiply_adds"] == 0.24


def test_other_unseen_tasks_for_each_seed():
    unseen = [held_out(seed) for seed in range(3)]
    assert all(len({*own}) == 24 and max(own) < len(TASKS) for own in unseen)
    assert unseen[0] == held_out(0)
    assert unseen[0] != unseen[1]


def test_accuracies_without_the_rows_of_other_classes_are_those_of_the_cut_network(network, test_data):
    found = cut_accuracies(network, test_data)
    for task in (0, 119):
        cut = narrow_outputs(network, "class", TASKS[task])
        assert found[task] == pytest.approx(100 * evaluate(cut, test_data.of_classes(TASKS[task])))
    assert len({*found}) > 5


def test_the_masked_supernet_is_as_accurate_as_its_slices(supernet, test_data, monkeypatch):
    monkeypatch.setattr(class_networks, "TASKS", [(0, 1, 2), (4, 6, 9)])
    chosen = [slice_of(supernet, own) for own in class_networks.TASKS]
    found = slice_accuracies(supernet, chosen, test_data)
    for one, own, accuracy in zip(chosen, class_networks.TASKS, found, strict=True):
        assert 0 < share_of(supernet, one) <= SHARE
        assert accuracy == pytest.approx(100 * evaluate(one.network(), test_data.of_classes(own)))


def test_a_run_without_data_is_skipped(monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert run("factory.classes", TARGETS, classes.measure, [], classes.add_options) == EXIT_SKIPPED
    message = capsys.readouterr().out.replace("\n", "")
    assert all(file in message for file in FILES)


def test_every_figure_with_a_target_is_measured(monkeypatch, tmp_path, capsys):
    """A quick run only decides whether slices keep the limit; of several seeds, the worst counts there."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    results = {0: COMPARED, 1: replace(COMPARED, multiply_adds=np.array([0.3]), slices=COMPARED.untuned + 1)}
    monkeypatch.setattr(classes, "compared", lambda data, extent, seed: results[seed])
    argv = ["--data", str(tmp_path)]
    assert run("factory.classes", TARGETS, classes.measure, [*argv, "--quick"], classes.add_options) == 0
    options = type("Options", (), {"seeds": [0, 1], "quick": False, "data": tmp_path})()
    found = classes.measure(options)
    assert TARGETS.keys() <= found.keys()
    assert found["known_above"] == pytest.approx(2 / 3)
    assert found["most_multiply_adds"] == 0.3
    assert "seed 1" in capsys.readouterr().out
