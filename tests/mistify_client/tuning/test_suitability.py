"""Changes that alter the meaning of images are noticed, and other data are left alone."""

from dataclasses import replace

import numpy as np
import pytest

from mistify_client.examples import Examples
from mistify_client.porting.progress import LineDisplay
from mistify_client.tuning import TrainingSettings, tune
from mistify_client.tuning.suitability import suitable_augmentation
from mistify_client.tuning.trainer import load_trainer
from tests.mistify_client.tuning.devices import examples
from tests.support.adaptable import digits, make_package
from tests.support.paths import DATA

IMAGES, CLASSES = digits()
LABELLED = Examples({"image": IMAGES}, {"digit": CLASSES.astype(np.int64)})


@pytest.fixture
def trainer():
    """Return the trainer of a network of 8 x 8 digits."""
    return load_trainer(DATA / "adaptable_trainable", threads=1)


def train(trainer, images, labels, passes):
    size, rng = trainer.training.batch_size, np.random.default_rng(0)
    for _ in range(passes):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - size + 1, size):
            rows = order[start : start + size]
            trainer.train_step({"image": images[rows]}, {"digit": labels[rows]}, 2e-3)


@pytest.fixture
def ambidextrous(trainer):
    """Return the trainer after it also learnt mirror images, of some other digits."""
    images = np.concatenate([IMAGES[:400], IMAGES[:400, :, ::-1]])
    train(trainer, images, np.tile(LABELLED.targets["digit"][:400], 2), passes=8)
    return trainer


REST = LABELLED.subset(np.arange(400, len(IMAGES)))


def test_digits_are_not_changed(trainer):
    assert suitable_augmentation(trainer, LABELLED) is None


def test_images_are_flipped_if_the_network_does_not_notice(ambidextrous):
    augmentation = suitable_augmentation(ambidextrous, REST)
    assert (augmentation.flip, augmentation.shift) == (True, 0)
    assert augmentation.classes == {"digit": 10}


def test_unusable_data_are_left_to_the_training(ambidextrous):
    """It reports what is missing or wrong."""
    unknown = np.full(len(REST), 10)
    for inputs, targets in (({}, REST.targets), (REST.inputs, {}), (REST.inputs, {"digit": unknown})):
        assert suitable_augmentation(ambidextrous, replace(REST, inputs=inputs, targets=targets)) is None


def test_few_examples_cannot_judge(ambidextrous):
    assert suitable_augmentation(ambidextrous, REST.subset(np.arange(49))) is None
    unknown = np.full(len(REST), -1)
    assert suitable_augmentation(ambidextrous, replace(REST, targets={"digit": unknown})) is None


def test_a_network_that_knows_nothing_cannot_judge(ambidextrous):
    shuffled = np.random.default_rng(0).permutation(REST.targets["digit"])
    assert suitable_augmentation(ambidextrous, replace(REST, targets={"digit": shuffled})) is None


def test_other_losses_than_the_cross_entropy_have_no_mixed_labels(ambidextrous, monkeypatch):
    """Here, the loss is that of the upper digits, such as with class weights of 0 for the others."""
    evaluate = ambidextrous.evaluate

    def weighted(inputs, targets):
        labels = targets["digit"]
        return evaluate(inputs, {"digit": np.where(labels < 5, -1, labels)})

    monkeypatch.setattr(ambidextrous, "evaluate", weighted)
    assert suitable_augmentation(ambidextrous, REST) is None


@pytest.mark.parametrize("name", ["trainable", "trainable_figures", "trainable_kinds", "trainable_tokens"])
def test_small_images_numbers_and_texts_are_not_changed(name):
    trainer = load_trainer(DATA / name, threads=1)
    some = examples(1, 100)
    inputs = {
        info.name: np.ones((100, 4), np.int32) if info.dtype == "int32" else some.inputs["image"]
        for info in trainer.manifest.inputs
    }
    labels = dict.fromkeys(trainer.training.kinds, some.targets["scores"])
    assert suitable_augmentation(trainer, Examples(inputs, labels)) is None


def test_maps_of_other_than_colours_are_not_changed(ambidextrous):
    """Such as a window of a sensor, of which the last axis has the channels."""
    (info,) = ambidextrous.manifest.inputs
    many = info.model_copy(update={"shape": (-1, 8, 8, 6)})
    ambidextrous.manifest = ambidextrous.manifest.model_copy(update={"inputs": (many,)})
    maps = np.repeat(REST.inputs["image"], 6, axis=3)
    assert suitable_augmentation(ambidextrous, replace(REST, inputs={"image": maps})) is None


@pytest.mark.parametrize("with_mirror_images", [False, True])
def test_a_tuning_flips_images_only_if_that_suits_them(tmp_path, with_mirror_images):
    """Digits change their meaning, unless the data have mirror images, too, with the same labels."""
    package = make_package(tmp_path / "package", "adaptable_trainable")
    images, labels = IMAGES[:400], LABELLED.targets["digit"][:400]
    if with_mirror_images:
        images, labels = np.concatenate([images, images[:, :, ::-1]]), np.tile(labels, 2)
    lines: list[str] = []
    outcome = tune(
        package,
        Examples({"image": images}, {"digit": labels}),
        settings=TrainingSettings(learning_rate=2e-3, most_passes=2),
        threads=1,
        display=LineDisplay(lines.append),
    )
    assert outcome.ended.loss <= outcome.began.loss
    assert ("images are randomly flipped and mixed" in lines) == with_mirror_images
