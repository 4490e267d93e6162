"""Factories of classifiers: a device cuts a network for some classes, into a package of its own."""

import shutil

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory.assembler import AssemblerShape
from executors.algorithms.nnfactory.parts import factory_parts
from executors.algorithms.nnfactory.supernet import Supernet
from executors.data import Dataset
from executors.structure import analyse
from executors.structure.edits.outputs import narrow_outputs
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.task import TaskConfig
from mistify.errors import MistifyError
from mistify.package.manifest import Manifest
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace
from mistify_client import load
from mistify_client.runtime.versions import current
from mistify_client.slicing.customizing import SliceRequest, customize
from mistify_server.worker.packaging.models import package_model
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import package_task, slices_of
from tests.support.factories import images

layers = keras.layers

CLASSES = ("cat", "dog", "frog", "owl", "newt")

SPACE = TaskSpace.model_validate(
    {"properties": {"classes": CLASSES}, "names": {"all": CLASSES}, "tasks": {"all": ["all"]}}
)

QUALITY = Quality(tasks=("cat, dog",), limits=(0.2, 1.0), scores=((0.8, 0.9),))


def network() -> keras.Model:
    image = keras.Input((8, 8, 1), name="image")
    x = layers.MaxPooling2D(4)(layers.Conv2D(24, 3, padding="same", activation="relu", name="inner")(image))
    x = layers.Dense(16, "relu", name="hidden")(layers.Flatten()(x))
    return randomised(keras.Model(image, layers.Dense(5, "softmax", name="answer")(x)))


@pytest.fixture(scope="module")
def supernet():
    keras.utils.set_random_seed(1)
    return Supernet(
        analyse(network()), AssemblerShape(5, 8, 2, modulate=True), SPACE, QUALITY, classes=CLASSES
    )


@pytest.fixture(scope="module")
def package(supernet, tmp_path_factory):
    model = supernet.network
    answers = model.predict(images(40), verbose=0).argmax(axis=1)
    data = Dataset({"image": images(40)}, {"answer": answers}, {"answer": CLASSES})
    setup = TrainingSetup(data, data, None, TrainingParams())
    parts = factory_parts(supernet)
    slices = slices_of(parts.factory.whole)
    packaged = package_model(model, package_task(), setup, data, parts=parts, slices=slices)
    directory = tmp_path_factory.mktemp("packages") / "package"
    directory.mkdir()
    for name, content in packaged.files.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.mark.slow
def test_a_network_for_some_classes_is_a_package_of_its_own(package, supernet, tmp_path):
    out = tmp_path / "cat-frog"
    result = customize(package, SliceRequest("frog,cat", limit=0.5), out=out, seconds=1e-3)
    manifest = Manifest.load(out)
    assert manifest.task.classes == ("cat", "frog")
    assert manifest.labels == {"answer": ("cat", "frog")}
    assert manifest.outputs[0].shape == (-1, 2)
    (assembly,) = supernet.assemblies(np.array([1, 0, 1, 0, 0], "f4"), [result.made.candidate.limit])
    reference = narrow_outputs(supernet.slice(assembly), "answer", [0, 2])(images(16), training=False)
    answered = load(out, task={"classes": ["frog", "cat"]})(images(16))
    np.testing.assert_allclose(answered, reference, atol=1e-5)
    assert current(package) == package


@pytest.mark.slow
def test_the_package_itself_may_be_for_other_classes(package, tmp_path):
    shutil.copytree(package, tmp_path / "dogs-owls")
    own = {"labels": {"answer": ("dog", "owl")}, "task": TaskConfig(classes=("dog", "owl"))}
    Manifest.load(package).model_copy(update=own).save(tmp_path / "dogs-owls")
    for task in ("owl,dog", {"classes": ["3", "dog"]}):
        assert load(tmp_path / "dogs-owls", task=task).manifest.task.classes == ("dog", "owl")
    customize(
        tmp_path / "dogs-owls", SliceRequest("newt,frog", limit=0.5), out=tmp_path / "out", seconds=1e-3
    )
    assert Manifest.load(tmp_path / "out").labels == {"answer": ("frog", "newt")}


@pytest.mark.slow
def test_data_of_the_classes_decide(package, tmp_path):
    np.savez(tmp_path / "mine.npz", x=images(12), y=np.arange(12) % 3)
    request = SliceRequest(["owl", "dog", "newt"], data=tmp_path / "mine.npz")
    customize(package, request, out=tmp_path / "out", seconds=1e-3)
    assert Manifest.load(tmp_path / "out").accuracy_examples == 12
    np.savez(tmp_path / "mine.npz", x=images(12), y=np.arange(12) % 4)
    with pytest.raises(MistifyError, match="0 to 2, or -1"):
        customize(package, request, out=tmp_path / "other", seconds=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("cat,dgo", r'--task: got "dgo"; expected one of .*; did you mean "dog"'),
        ("cat", "--task: .* at least two classes"),
        ("cat,cat", '--task: got "cat"; expected each class once'),
        ("cat,9", "--task: got .9"),
        ("cat,dog", "--out: got nothing; expected a directory for a package of its own"),
    ],
)
def test_what_cannot_be_cut_is_refused(package, task, message):
    with pytest.raises(MistifyError, match=message):
        customize(package, SliceRequest(task), seconds=1e-3)
