"""The description of folded norms in a package: its calibration, and the reasons for none."""

import json

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.outputs.objectives import objectives_of
from mistify.config.package.tuning import TuningConfig
from mistify.package.adaptation import ADAPTATION, STATISTICS, AdaptationStore
from mistify_server.worker.packaging.adaptation.calibration import single_class_streams
from mistify_server.worker.packaging.adaptation.files import adaptation_files
from tests.mistify_server.worker.packaging.adaptation.folded_networks import converted, pixels, residual
from tests.mistify_server.worker.packaging.networks import (
    four_branches,
    network,
    package_task,
    packaged,
    training_setup,
)


def labelled(count=120, classes=3, bright=()):
    """Return images with classes; those of some classes are brighter than others."""
    images, labels = pixels(count) / 2, np.arange(count) % classes
    images[np.isin(labels, bright)] *= 2
    return Dataset({"image": images.astype(np.uint8)}, {"class": labels})


def files_of(*data, make=residual):
    model, content, _ = converted(make)
    return adaptation_files([model], content, objectives_of(model, data[0]), data)


def store_of(files):
    return AdaptationStore.model_validate_json(files.files[ADAPTATION])


def test_a_class_unlike_the_others_needs_a_larger_shift():
    alike, unlike = (store_of(files_of(labelled(bright=bright))) for bright in ((0, 1, 2), (0,)))
    assert [norm.channels for norm in alike.norms] == [24, 24, 24]
    assert (alike.output, alike.kind, alike.classes) == ("class", "softmax", 3)
    assert unlike.norms[0].variance_move > 1.2 * alike.norms[0].variance_move


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (labelled(60), "fewer than two classes of class have 32 examples"),
        (labelled(120, classes=1), "fewer than two classes of class have 32 examples"),
    ],
)
def test_too_few_examples_of_classes_are_a_reason(data, reason):
    files = files_of(data)
    assert not files.files
    assert reason in files.note


def test_the_training_data_count_if_more_of_their_classes_have_enough_examples():
    few, many = labelled(80), labelled(300, bright=(0,))
    assert store_of(files_of(few, many)) == store_of(files_of(many))
    assert store_of(files_of(labelled(120), many)) == store_of(files_of(labelled(120)))


def test_a_network_without_batch_norm_is_a_reason():
    def plain():
        image = keras.Input((8, 8, 3), name="image")
        x = keras.layers.Conv2D(4, 3, activation="relu")(image)
        x = keras.layers.GlobalAveragePooling2D()(x)
        return keras.Model(image, keras.layers.Dense(3, "softmax", name="class")(x))

    assert "no batch norm" in files_of(labelled(), make=plain).note


def test_figures_alone_are_a_reason():
    def figures():
        image = keras.Input((8, 8, 3), name="image")
        x = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(image))
        return keras.Model(image, keras.layers.Dense(1, name="figure")(keras.layers.Flatten()(x)))

    data = Dataset({"image": pixels(40)}, {"figure": np.ones((40, 1), np.float32)})
    assert "no output has classes" in files_of(data, make=figures).note


def test_streams_are_of_the_most_frequent_classes():
    classes = np.repeat(np.arange(-1, 14), 40)
    classes = np.concatenate([classes, [13] * 200, [12] * 10])
    streams = single_class_streams(classes)
    assert [set(classes[rows]) for rows in streams[:2]] == [{13}, {12}]
    assert len(streams) == 10
    assert len(streams[0]) == 80


def test_a_package_has_the_files_where_its_goal_asks_for_them():
    model = network()
    setup = training_setup(model, validation=160)
    assert ADAPTATION not in packaged(model, package_task(), setup).files
    task = package_task(tuning=TuningConfig(adaptation=True))
    made = packaged(model, task, setup)
    assert {ADAPTATION, STATISTICS} <= made.manifest.files.keys()
    assert made.manifest.training is None
    assert made.manifest.note == packaged(model, package_task(), setup).manifest.note
    assert len(json.loads(made.files[ADAPTATION])["norms"]) == 3


def test_a_package_says_why_it_has_none():
    model = network()
    setup = training_setup(model, validation=40)
    made = packaged(model, package_task(tuning=TuningConfig(adaptation=True)), setup)
    assert ADAPTATION not in made.files
    assert "cannot be adapted to data without labels: fewer than two classes" in made.manifest.note


def test_branches_have_norms_of_their_own():
    branches = four_branches()
    model = branches.networks[2].model
    task = package_task(tuning=TuningConfig(adaptation=True))
    made = packaged(model, task, training_setup(model, validation=300), branches=branches)
    store = AdaptationStore.model_validate_json(made.files[ADAPTATION])
    assert sorted(norm.name for norm in store.norms) == ["inner"] * 4 + ["stem"]
