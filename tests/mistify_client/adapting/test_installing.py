"""Adapted versions of packages: the way back from them, and descriptions that do not fit their networks."""

from pathlib import Path

import pytest

from mistify.adaptation.statistics import Statistics
from mistify.errors import ErrorCode, MistifyError
from mistify.package.adaptation import ADAPTATION, AdaptationStore
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.tflite.combining import read_network
from mistify.tflite.linear import linear_operator
from mistify_client.adapting.installing import adaptable_version, install_adapted
from mistify_client.monitor.installed import take_back
from mistify_client.runtime.versions import current, install, previous, roll_back
from tests.support.adaptable import make_package


def refusal(package: Path) -> MistifyError:
    """Return the error of an installation, which changes nothing."""
    version = adaptable_version(package)
    shipped = version.store.read_statistics(version.base)
    with pytest.raises(MistifyError) as caught:
        install_adapted(package, version, Statistics(shipped["mean"], 2 * shipped["variance"]))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert current(package) == package
    return caught.value


@pytest.mark.parametrize("exists", [True, False])
def test_norms_that_the_network_lacks_are_reported(tmp_path: Path, exists: bool) -> None:
    package = make_package(tmp_path / "package")
    model = read_network((package / NETWORK).read_bytes())
    graph, store = model.subgraphs[0], AdaptationStore.of(Package.open(package))
    others = [at for at in range(len(graph.operators)) if linear_operator(model, graph, at) is None]
    place = (0, others[0] if exists else len(graph.operators))
    norms = (store.norms[0].model_copy(update={"operators": (place,)}), *store.norms[1:])
    content = store.model_copy(update={"norms": norms}).as_json()
    (package / ADAPTATION).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, ADAPTATION: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)
    (problem,) = refusal(package).problems
    assert problem.place == str(package / ADAPTATION)


def test_a_weight_at_no_constant_of_the_network_is_reported(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package", "adaptable_trainable")
    manifest = Manifest.load(package)
    assert manifest.training is not None
    first, *others = manifest.training.weights
    offset = first.places[0].offset + 1
    moved = first.model_copy(update={"places": (first.places[0].model_copy(update={"offset": offset}),)})
    training = manifest.training.model_copy(update={"weights": (moved, *others)})
    manifest.model_copy(update={"training": training}).save(package)
    (problem,) = refusal(package).problems
    assert (problem.place, problem.value) == (str(package / MANIFEST), f"a weight at byte {offset}")


def test_a_package_is_taken_back_to_the_one_before_although_it_was_adapted_meanwhile(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    for goal in ("first", "second"):
        other = make_package(tmp_path / goal)
        Manifest.load(other).model_copy(update={"goal": goal}).save(other)
        install(package, other)
    manifest = Manifest.load(current(package))
    for factor in (2, 3):
        version = adaptable_version(package)
        shipped = version.store.read_statistics(version.base)
        install_adapted(package, version, Statistics(shipped["mean"], factor * shipped["variance"]))
    assert Manifest.load(previous(package)).goal == "second"
    assert len([*current(package).parent.iterdir()]) == 3
    take_back(package, manifest.job, "second")
    assert Manifest.load(current(package)).goal == "first"
    roll_back(package)
    assert current(package) == package
