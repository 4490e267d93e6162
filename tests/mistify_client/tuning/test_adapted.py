"""Tuning of packages that are adapted to their data without labels: labelled images through a dirty lens."""

from types import SimpleNamespace

import numpy as np
import pytest

from mistify.adaptation.statistics import Statistics
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.verification import verify
from mistify_client import load
from mistify_client.adapting.installing import adaptable_version, install_adapted, remove_adaptation
from mistify_client.porting.progress import LineDisplay
from mistify_client.runtime.versions import current, install, previous, roll_back
from mistify_client.tuning import Examples, TrainingSettings, installing, tune
from mistify_client.tuning.examples import split
from mistify_client.tuning.trainer import load_trainer, start_from_current
from mistify_client.tuning.tuner import VALIDATION
from tests.support.adaptable import Camera, digits, dirty, make_package, shuffled

IMAGES, CLASSES = digits()
LABELLED = Examples({"image": dirty(IMAGES[:300])}, {"digit": CLASSES[:300].astype(np.int64)})
SETTINGS = TrainingSettings(learning_rate=1e-3, patience=2, slowdowns=0, most_passes=3)

#: Every step destroys the network.
DESTRUCTIVE = TrainingSettings(learning_rate=1e6, patience=1, slowdowns=0, most_passes=2)


@pytest.fixture
def package(tmp_path):
    """Return a package whose current version is adapted to a dirty lens."""
    package = make_package(tmp_path / "package", "adaptable_trainable")
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    camera.loop.close()
    assert current(package) != package
    return package


def accuracy(package):
    """Return the accuracy of the current version on other images through the dirty lens."""
    return float((load(package)(dirty(IMAGES[300:])).argmax(axis=1) == CLASSES[300:]).mean())


def adapt_again(package, factor=2.0):
    """Install another adapted version, as the monitor does while a tuning runs."""
    version = adaptable_version(package)
    shipped = version.store.read_statistics(version.base)
    statistics = Statistics(shipped["mean"], shipped["variance"] * np.float32(factor))
    return install_adapted(package, version, statistics).directory


class DuringTheTuning(LineDisplay):
    """A display that does something once, after the first pass through the data."""

    def __init__(self, action):
        super().__init__(lambda line: None)
        self._action = action

    def update(self, subject, progress, source):
        action, self._action = self._action, lambda: None
        action()


def test_a_tuning_starts_from_the_adapted_version_and_replaces_it(package):
    held_out = split(LABELLED, VALIDATION, 16).held_out
    adapted, before = load(package), accuracy(package)
    right = adapted(held_out.inputs["image"]).argmax(axis=1) == held_out.targets["digit"]
    outcome = tune(package, LABELLED, settings=SETTINGS)
    assert outcome.began.accuracy == pytest.approx(right.mean())
    assert outcome.ended.loss < outcome.began.loss
    assert outcome.version == current(package) != package
    assert verify(current(package)).tuned_from == Manifest.load(package).files[NETWORK].sha256
    assert accuracy(package) > before
    roll_back(package)
    assert current(package) == package


def test_the_trainer_of_an_adapted_version_has_its_weights(package):
    """The file of its network has other offsets."""
    images = dirty(IMAGES[:32])
    outputs = load_trainer(current(package)).infer(images)["digit"]
    np.testing.assert_allclose(outputs, load(package)(images), atol=1e-5)
    assert not np.allclose(outputs, load_trainer(package).infer(images)["digit"], atol=1e-2)


def test_a_tuned_version_is_not_adapted_any_more(package):
    tune(package, LABELLED, settings=SETTINGS)
    with pytest.raises(MistifyError, match="it was tuned on this device") as error:
        Camera(package)
    assert error.value.code is ErrorCode.NOT_FOUND
    roll_back(package)
    Camera(package)


def test_without_a_gain_the_adapted_version_stays(package):
    adapted = current(package)
    outcome = tune(package, LABELLED, settings=DESTRUCTIVE)
    assert outcome.version is None
    assert current(package) == adapted


def test_a_mistake_in_the_data_leaves_the_adapted_version(package):
    adapted = current(package)
    with pytest.raises(MistifyError):
        tune(package, LABELLED.subset(np.arange(2)), settings=SETTINGS)
    assert current(package) == adapted


@pytest.mark.parametrize("action", [adapt_again, remove_adaptation])
def test_the_monitor_may_go_on_adapting_and_restoring_during_a_tuning(package, action):
    outcome = tune(package, LABELLED, settings=SETTINGS, display=DuringTheTuning(lambda: action(package)))
    assert outcome.version == current(package)
    assert previous(package) == package


def test_a_version_adapted_at_the_last_moment_is_replaced(package, monkeypatch):
    calls = []

    def late(*arguments, **options):
        calls.append(options["expected"])
        if len(calls) == 1:
            adapt_again(package)
        return install(*arguments, **options)

    monkeypatch.setattr(installing, "install", late)
    outcome = tune(package, LABELLED, settings=SETTINGS)
    assert outcome.version == current(package)
    assert len(set(calls)) == 2
    assert previous(package) == package


def test_another_package_installed_during_a_tuning_stays(package, tmp_path):
    other = make_package(tmp_path / "other")
    with pytest.raises(MistifyError, match="another version") as error:
        tune(
            package,
            LABELLED,
            settings=SETTINGS,
            display=DuringTheTuning(lambda: install(package, other)),
        )
    assert error.value.code is ErrorCode.CONFLICT
    assert (current(package) / NETWORK).read_bytes() == (other / NETWORK).read_bytes()


def test_a_package_adapted_in_layers_that_are_not_trained_is_refused(package):
    trainer = load_trainer(package)
    head = tuple(weight for weight in trainer.training.weights if weight.name.startswith("digit"))
    training = trainer.training.model_copy(update={"weights": head})
    with pytest.raises(MistifyError, match="mistify adaptation --reset") as error:
        start_from_current(SimpleNamespace(training=training), package, current(package))
    assert error.value.code is ErrorCode.CONFLICT
