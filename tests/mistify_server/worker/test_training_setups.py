"""Training setups: a teacher's predictions are computed once for each data set."""

from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from executors.contract.params import Params
from executors.data import Dataset, split
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.task import TaskConfig
from mistify_server.tasks.sources import DataSource
from mistify_server.worker import training_setups as worker_setup
from mistify_server.worker.training_setups import TrainingSetups
from tests.mistify_server.digits_tasks import taught

layers = keras.layers
MODELS = {}


def teacher(name: str) -> keras.Model:
    if name not in MODELS:
        keras.utils.set_random_seed(len(MODELS))
        inputs = keras.Input((4,), name="x")
        MODELS[name] = keras.Model(inputs, layers.Dense(3, "softmax", name="y")(inputs))
    return MODELS[name]


def examples(seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset({"x": rng.normal(size=(20, 4)).astype(np.float32)}, {"y": rng.integers(0, 3, 20)})


@pytest.fixture
def setups() -> TrainingSetups:
    data = {name: examples(seed) for seed, name in enumerate(("first", "second", "test"))}
    cache = SimpleNamespace(learning=lambda parts: split(data[Path(parts.train.source).name], 0.2))
    return TrainingSetups(cache, SimpleNamespace(shared=teacher))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[keras.Model]:
    """Return the teachers that were called on training data, in order."""
    called = []

    class Counting(worker_setup.Evaluation):
        def outputs(self, inputs):
            called.append(self.model)
            return super().outputs(inputs)

    monkeypatch.setattr(worker_setup, "Evaluation", Counting)
    return called


def test_predictions_belong_to_their_data_and_teacher(setups):
    orders = [("a", "first"), ("a", "second"), ("b", "second"), ("a", "first")]
    for name, train in orders:
        setup = setups.prepare(taught(name, data=DataSource(train=train, test="test")), Params())
        expected = np.asarray(teacher(name)(setup.train.inputs["x"]))
        np.testing.assert_allclose(setup.teacher["y"], expected, atol=1e-6)


def test_predictions_are_computed_once_for_all_goals(setups, passes):
    source = DataSource(train="first", test="test")
    first, second = (setups.prepare(taught("a", data=source), Params()) for _ in range(2))
    assert second.teacher is first.teacher
    assert passes == [teacher("a")]


def test_predictions_are_removed_with_their_files(setups, passes, tmp_path):
    file, source = tmp_path / "first", DataSource(train=str(tmp_path / "first"), test="test")
    for content in ("old", "old", "new content"):
        if not file.exists() or file.read_text() != content:
            file.write_text(content)
        setups.prepare(taught("a", data=source), Params())
    assert len(passes) == 2


def test_predictions_include_mirror_images_if_images_are_flipped():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 6, 1), name="x")
    model = keras.Model(inputs, layers.Dense(3, "softmax", name="y")(layers.Flatten()(inputs)))
    images = np.random.default_rng(0).normal(size=(20, 4, 6, 1)).astype(np.float32)
    data = Dataset({"x": images}, {"y": np.arange(20) % 3})
    cache = SimpleNamespace(learning=lambda parts: split(data, 0.2))
    setups = TrainingSetups(cache, SimpleNamespace(shared=lambda name: model))
    source = DataSource(train="first", test="test")
    assert setups.prepare(taught("a", data=source), Params()).mirrored is None
    flipping = source.model_copy(update={"settings": DataSettings(augment=Augmentation(flip=True))})
    setup = setups.prepare(taught("a", data=flipping), Params())
    train = setup.train.inputs["x"]
    np.testing.assert_allclose(setup.teacher["y"], model(train), atol=1e-6)
    np.testing.assert_allclose(setup.mirrored["y"], model(train[:, :, ::-1]), atol=1e-6)


def test_nothing_is_predicted_without_distillation(setups, passes):
    recipe = taught("a", data=DataSource(train="first", test="test"))
    assert setups.prepare(recipe, Params(), distilled=False).teacher is None
    assert passes == []


def test_a_task_of_classes_has_their_rows_of_the_teacher_and_their_examples(setups):
    recipe, task = taught("a", data=DataSource(train="first", test="test")), TaskConfig(classes=("0", "2"))
    setup = setups.prepare(recipe, Params(), task)
    outputs = np.asarray(teacher("a")(setup.train.inputs["x"]))[:, [0, 2]]
    expected = outputs / outputs.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(setup.teacher["y"], expected, atol=1e-6)
    np.testing.assert_allclose(setups.teacher(recipe, task)(setup.train.inputs["x"]), expected, atol=1e-6)
    whole = setups.prepare(recipe, Params())
    for part, all_of_it in ((setup.train, whole.train), (setup.validation, whole.validation)):
        of_classes = np.isin(all_of_it.targets["y"], (0, 2))
        np.testing.assert_array_equal(part.inputs["x"], all_of_it.inputs["x"][of_classes])
        np.testing.assert_array_equal(part.targets["y"], all_of_it.targets["y"][of_classes] // 2)
        assert part.classes == {"y": ("0", "2")}
    assert setups.teacher(recipe) is teacher("a")
    assert whole.teacher["y"].shape[1] == 3


def test_parents_are_cut_to_a_task_once(setups):
    recipe, task = taught("a", data=DataSource(train="first", test="test")), TaskConfig(classes=("0", "2"))
    cut = setups.parent(recipe, "b", task)
    assert cut.output_shape == (None, 2)
    assert setups.parent(recipe, "b", task) is cut
    MODELS["cut"] = cut
    assert setups.parent(recipe, "cut", task) is cut


def test_an_algorithm_that_serves_tasks_has_a_whole_teacher_that_teaches_none(setups, monkeypatch):
    monkeypatch.setattr(worker_setup, "algorithm", lambda name: SimpleNamespace(serves_tasks=True))
    recipe, task = taught("a", data=DataSource(train="first", test="test")), TaskConfig(classes=("0", "2"))
    assert setups.teacher(recipe, task) is teacher("a")
    setup = setups.prepare(recipe, Params(), task)
    assert setup.teacher is None
    assert {*setup.train.targets["y"].tolist()} == {0, 1}
    assert setups.prepare(recipe, Params()).teacher["y"].shape[1] == 3


def test_names_in_a_file_are_those_of_the_classes(setups, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\nfrog\n")
    settings = DataSettings(labels=str(tmp_path / "labels.txt"))
    recipe = taught("a", data=DataSource(train="first", test="test", settings=settings))
    setup = setups.prepare(recipe, Params())
    assert setup.train.classes == setup.validation.classes == {"y": ("cat", "dog", "frog")}
    some = setups.prepare(recipe, Params(), TaskConfig(classes=("frog", "cat")))
    assert some.train.classes == {"y": ("cat", "frog")}
