"""Apps that need a package for one task."""

import threading

import numpy as np
import pytest

from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK, Manifest
from mistify_client import load
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.factories import images, make_package


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def cut(package, task):
    return customize(package, SliceRequest(task), seconds=1e-3)


@pytest.mark.parametrize(
    "task", ["exactly:2,odd", ["odd", "exactly:2"], "two-odd", ["exactly:2", "3", "1"], ("exactly:2", "odd")]
)
def test_a_task_may_be_written_in_many_ways(package, task):
    cut(package, "exactly:2,odd")
    assert load(package, task=task).manifest.task.properties == ("exactly:2", "odd")


def test_a_package_that_serves_another_task_is_refused(package):
    with pytest.raises(MistifyError, match="serves no single task, not has, 4") as error:
        load(package, task="has,4")
    assert error.value.code is ErrorCode.NOT_FOUND
    cut(package, "exactly:2,odd")
    with pytest.raises(MistifyError, match='mistify customize --task "has, 4" makes a network for it'):
        load(package, task="has,4")


def test_a_shipped_package_of_the_task_runs_in_place_of_another_version(package, caplog):
    serving(package, TaskConfig(properties=("4", "has")))
    cut(package, "exactly:2,odd")
    model = load(package, task="has,4")
    assert model.manifest == Manifest.load(package)
    assert "used as it was shipped" in caplog.text


def test_versions_of_other_tasks_do_not_take_over(package):
    cut(package, "exactly:2,odd")
    model = load(package, task="two-odd")
    before = model(images(2))
    cut(package, "has,4")
    assert follow(model) == ("exactly:2", "odd")
    np.testing.assert_array_equal(model(images(2)), before)


def test_versions_of_the_same_task_take_over(package):
    first = cut(package, "exactly:2,odd").directory
    model = load(package, task="two-odd")
    customize(package, SliceRequest("exactly:2,odd", limit=0.1), seconds=1e-3)
    follow(model)
    assert model.manifest != Manifest.load(first)


def follow(model):
    """The task of a model that has had the time to load another version."""
    model(images(2))
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    return model.manifest.task.properties


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("exactly:2,od", 'did you mean "odd"'),
        ([], 'either properties or "classes"'),
        ({"classes": ["cat"]}, "at least two classes"),
        ({"kind": "cat"}, "kind"),
        ({"exactly:2"}, "expected a list of properties, a text with commas between them, or an object"),
        (5, "the task: 1 problem, nothing was started\n  task: got 5; expected a list of properties"),
    ],
)
def test_what_is_no_task_is_refused(package, task, message):
    with pytest.raises(MistifyError, match=message) as error:
        load(package, task=task)
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_a_package_without_a_factory_knows_its_classes_alone(package):
    manifest = Manifest.load(package)
    files = {NETWORK: manifest.files[NETWORK]}
    manifest.model_copy(update={"files": files}).save(package)
    serving(package, TaskConfig(classes=("cat", "dog")))
    assert load(package, task={"classes": ["dog", "cat"]})(images(1)).shape == (1, 1)
    with pytest.raises(MistifyError, match=r"serves classes cat, dog, not classes cat, frog$"):
        load(package, task={"classes": ["cat", "frog"]})


@pytest.mark.parametrize(
    "task",
    ["dog, crane, bird", "crane, bird,dog", ["dog", "crane, bird"], {"classes": ["dog", "crane, bird"]}],
)
def test_classes_of_a_package_without_a_factory_may_be_written_in_many_ways(package, task):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {NETWORK: manifest.files[NETWORK]}}).save(package)
    serving(package, TaskConfig(classes=("crane, bird", "dog")))
    assert load(package, task=task).manifest.task.classes == ("crane, bird", "dog")
    with pytest.raises(MistifyError, match=r"serves classes crane, bird, dog, not classes dog, crane$"):
        load(package, task="dog,crane")


def serving(package, task):
    """Let the shipped package say that it serves a task."""
    Manifest.load(package).model_copy(update={"task": task}).save(package)
