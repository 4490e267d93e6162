"""`mistify customize` and `mistify tasks` as a user sees them."""

import json

import numpy as np
import pytest

from mistify.config.task import TaskConfig
from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.cut_places import ConstantCut, CutAxis
from mistify.package.factory import FACTORY, FactoryStore
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import TaskSpace
from mistify_client import load
from mistify_client.runtime.trust import TRUSTED
from mistify_client.runtime.versions import current
from tests.support.factories import QUALITY, UNSEEN, images, make_package
from tests.support.signed_packages import sign_package


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


@pytest.fixture
def customize(mistify, package):
    return lambda *args: mistify("customize", "--package", package, *args)


def test_cuts_installs_and_says_what_it_did(customize, package):
    result = customize("--task", "exactly:2,odd", "--latency", "1s", "--memory", "1MB")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["measuring 10 slices"]
    first, note, last = result.stdout.splitlines()
    assert first.startswith("exactly:2, odd: ")
    assert "of at most 1s, " in first
    assert "of at most 1MB, " in first
    assert first.endswith("expected")
    assert note == "note: accuracy is expected, by tasks on the server's data; not measured here"
    assert last.replace(" ", "").endswith(current(package).name)


def test_json_says_the_same(customize, package, tmp_path):
    np.savez(tmp_path / "mine.npz", image=images(9), answer=np.arange(9)[:, None] % 2)
    result = customize("--task", UNSEEN, "--limit", "0.5", "--data", tmp_path / "mine.npz", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    manifest = Manifest.load(current(package))
    assert report["task"] == ["exactly:1", "even"]
    assert report["accuracy"] == manifest.accuracy
    assert report["accuracy_examples"] == 9
    assert report["latency_ms"] == manifest.latency.median_ms
    assert 0 < report["limit"] <= 0.5
    assert report["directory"] == str(current(package))


def test_a_package_of_its_own(customize, package, tmp_path):
    result = customize("--task", "has,4", "--out", tmp_path / "has-4")
    assert result.exit_code == 0, result.output
    assert "written: " in result.stdout
    assert current(package) == package
    again = customize("--task", "has,4", "--out", tmp_path / "has-4")
    assert again.exit_code == 2
    assert "--out: got " in again.stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--task", "exactly:2,od"), 2, 'did you mean "odd"'),
        (("--task", "has,4", "--latency", "fast"), 2, '--latency: got "fast"; expected a time'),
        (("--task", "has,4", "--memory", "much"), 2, '--memory: got "much"; expected'),
        (("--task", "has,4", "--limit", "0"), 2, "--limit: got 0; expected a share from 0.1 to 1"),
        (("--task", "has,4", "--data", "none.npz"), 2, "no such file"),
    ],
)
def test_mistakes_are_named_with_their_options(customize, args, code, message):
    result = customize(*args)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.split())


def test_a_package_without_an_assembler(mistify, package):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {}}).save(package)
    for command in (("customize", "--task", "has,4"), ("tasks",)):
        result = mistify(*command, "--package", package)
        assert result.exit_code == 3
        assert "has no assembler" in result.stderr


def test_tasks_are_listed_with_their_accuracy_by_limit(mistify, customize, package):
    customize("--task", "two-odd")
    result = mistify("tasks", "--package", package)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert "how many: has, exactly:1, exactly:2" in result.stdout
    assert "odd: stands for 1, 3" in result.stdout
    assert ["*", "exactly:2,", "odd", "70.0%", "80.0%", "95.0%", "90.0%"] in lines
    assert ["mean", "70.0%", "78.3%", "88.3%", "83.3%"] in lines


def test_tasks_as_json(mistify, package):
    listed = json.loads(mistify("tasks", "--package", package, "--json").stdout)
    assert listed["serves"] is None
    assert listed["limits"] == list(QUALITY.limits)
    assert listed["tasks"]["has, 4"] == list(QUALITY.scores[1])
    assert listed["names"]["even"] == ["2", "4"]


CLASSES = ("crane, bird", "dog", "cat")


@pytest.fixture
def package_of_classes(package):
    """The package as it would be for a classifier, whose tasks are of numbers, as one name has a comma."""
    store = FactoryStore.of(Package.open(package))
    rows = ConstantCut(tensors=((0, 0),), axes=(CutAxis(axis=0, group=len(store.groups)),))
    places = store.places
    of_classes = {
        "units": (*places.units, len(CLASSES)),
        "constants": (*places.constants, rows),
    }
    space = {
        "properties": {"classes": ["0", "1", "2"]},
        "names": {"all": ["0", "1", "2"]},
        "tasks": {"all": ["all"]},
    }
    changed = {
        "space": TaskSpace.model_validate(space),
        "classes": CLASSES,
        "quality": Quality(tasks=("0, 2", "all"), limits=(1.0,), scores=((0.9,), (0.8,))),
        "places": places.model_copy(update=of_classes),
    }
    content = store.model_copy(update=changed).as_json()
    (package / FACTORY).write_bytes(content)
    manifest = Manifest.load(package)
    files = manifest.files | {FACTORY: PackagedFile.of(content)}
    task = TaskConfig(classes=("crane, bird", "cat"))
    manifest.model_copy(update={"files": files, "task": task}).save(package)
    return package


def test_tasks_of_numbered_classes_are_listed_with_their_names(mistify, package_of_classes):
    result = mistify("tasks", "--package", package_of_classes)
    assert result.exit_code == 0, result.output
    assert 'classes: 0 "crane, bird", 1 "dog", 2 "cat"' in result.stdout
    assert ["*", "0,", "2", "90.0%"] in [line.split() for line in result.stdout.splitlines()]
    listed = json.loads(mistify("tasks", "--package", package_of_classes, "--json").stdout)
    assert listed["classes"] == [*CLASSES]
    assert listed["serves"] == "0, 2"


@pytest.mark.parametrize("task", ["crane, bird,dog", "dog,crane, bird", "dog,0", ["crane, bird", "dog"]])
def test_names_of_classes_may_have_commas(package_of_classes, task):
    asked = FactoryStore.of(Package.open(package_of_classes)).asked(task)
    assert asked.classes == (0, 1)
    if isinstance(task, list):
        with pytest.raises(
            MistifyError, match="serves classes crane, bird, cat, not classes crane, bird, dog"
        ):
            load(package_of_classes, task=task)


def test_slices_of_a_trusted_package(mistify, customize, package, tmp_path, monkeypatch):
    """A slice that is installed is the device's own; a package of its own has to be trusted once."""
    key, own = PrivateKey.generate(), tmp_path / "has-4"
    monkeypatch.setenv(TRUSTED, str(tmp_path / "trusted"))
    assert mistify("trust", key.public).exit_code == 0
    refused = customize("--task", "has,4")
    assert (refused.exit_code, "no signature" in refused.stderr) == (ErrorCode.UNTRUSTED.exit_code, True)
    sign_package(package, key)
    assert customize("--task", "has,4").exit_code == 0
    assert current(package) != package
    assert load(package, trusted=[key.public]).manifest == Manifest.load(current(package))
    assert customize("--task", "has,4", "--out", own).exit_code == 0
    with pytest.raises(MistifyError, match=r"mistify trust .*has-4"):
        load(own)
    assert mistify("trust", own).exit_code == 0
    load(own)
