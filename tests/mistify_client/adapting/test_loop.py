"""The loop of adaptation: a camera whose lens gets dirty and is cleaned, and everything in between."""

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.adaptation import ADAPTATION, STATISTICS, AdaptationStore
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify.package.verification import verify
from mistify_client import load
from mistify_client.adapting import guard, loop
from mistify_client.adapting.storage import AdaptationStorage
from mistify_client.runtime.samples import samples_directory
from mistify_client.runtime.versions import current, install, previous, roll_back, state_directory
from tests.support.adaptable import Camera, digits, dirty, make_package, shuffled
from tests.support.disks import files_limited_to

IMAGES, CLASSES = digits()
PACKAGES = ["adaptable", "adaptable_float16", "adaptable_dynamic", "adaptable_branches"]


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def accuracy(package, images):
    return float((load(package)(images).argmax(axis=1) == CLASSES).mean())


@pytest.mark.sampled
@pytest.mark.parametrize("name", PACKAGES)
def test_a_dirty_lens_is_followed_and_a_clean_one_restores_the_shipped_network(tmp_path, name):
    package = make_package(tmp_path / "package", name)
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    shipped, clean = accuracy(package, dirty(IMAGES)), accuracy(package, IMAGES)
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 640)))
    assert camera.events[0] == "installed"
    assert accuracy(package, dirty(IMAGES)) > shipped + 0.15
    verify(current(package))
    started = camera.now
    while current(package) != package:
        camera.shows(shuffled(IMAGES, 32))
    assert camera.now - started <= 60
    assert camera.events[-1] == "restored"
    assert accuracy(package, IMAGES) == clean
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before


def test_neither_clean_images_nor_those_of_one_class_install_anything(package):
    camera = Camera(package)
    camera.shows(shuffled(IMAGES, 640))
    for number in range(10):
        camera.shows(shuffled(IMAGES[number == CLASSES], 96))
    assert camera.events == []
    assert current(package) == package


def test_a_model_that_runs_takes_the_adapted_network_over(package):
    model = load(package)
    samples_directory(state_directory(package)).mkdir(parents=True)
    camera = Camera(package)
    before = model(dirty(IMAGES[:50]))
    camera.shows(dirty(shuffled(IMAGES, 480)))
    model(IMAGES[:1])
    model._load_new_version(model._switchboard.generation)  # without waiting for its thread
    assert not np.array_equal(model(dirty(IMAGES[:50])), before)


def test_inputs_of_a_model_reach_the_loop(package):
    camera, model = Camera(package), load(package)
    model(IMAGES[:4])
    camera.loop.step()
    assert AdaptationStorage(package).state().examples == 1
    (file,) = samples_directory(state_directory(package)).glob("*-*")
    assert file.stat().st_mode & 0o777 == 0o600
    camera.loop.close()
    assert not samples_directory(state_directory(package)).exists()
    model(IMAGES[:4])


def test_installations_are_a_minute_apart_and_keep_the_version_before(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 1400)))
    assert 1 <= len(camera.events) <= 1 + camera.now / guard.LEAST_SECONDS
    assert previous(package) == package
    roll_back(package)
    assert current(package) == package


def test_an_installation_that_fails_is_repeated_after_a_minute(package):
    camera, failed = Camera(package), []
    camera.shows(dirty(shuffled(IMAGES, 32)))
    with files_limited_to((package / NETWORK).stat().st_size - 1):  # as on a full disk
        while camera.now < 200:
            try:
                camera.shows(dirty(shuffled(IMAGES, 32)), seconds=0.5)
            except OSError:
                failed.append(camera.now)
    assert 2 <= len(failed) <= 3
    while camera.now < 270:
        camera.shows(dirty(shuffled(IMAGES, 32)), seconds=0.5)
    assert camera.events[0] == "installed"


def test_the_first_installation_waits_for_statistics_that_have_settled(package):
    """It is close to the last one; a shift of 1.5 is reached much earlier."""
    camera = Camera(package)
    images = dirty(shuffled(IMAGES, 1400))
    while not camera.events:
        camera.shows(images[:32])
        images = images[32:]
    first = AdaptationStorage(package).state().shift
    camera.shows(images)
    assert first > 0.65 * AdaptationStorage(package).state().shift
    assert len(camera.events) <= 2


def test_a_shift_that_goes_on_growing_is_installed_without_settling(package):
    camera = Camera(package)
    images = shuffled(IMAGES, 1400)
    for number in range(0, len(images), 32):
        camera.shows(images[number : number + 32] * np.float32(0.97 ** (number / 32)), seconds=0.2)
        if camera.events:
            break
    assert camera.events == ["installed"]
    assert AdaptationStorage(package).state().shift >= guard.INSTALL_AT


@pytest.mark.parametrize("seconds", [50, 58])
def test_a_lens_that_is_cleaned_is_not_adapted_to_on_the_way_back(package, seconds):
    """The statistics have gone on moving since the installation, so that another was due after a minute."""
    camera = Camera(package)
    while not camera.events:
        camera.shows(dirty(shuffled(IMAGES, 32, len(camera.events))), seconds=0.2)
    installed = camera.now
    while camera.now < installed + seconds:
        camera.shows(dirty(shuffled(IMAGES, 32)))
    while current(package) != package:
        camera.shows(shuffled(IMAGES, 32))
    assert camera.events == ["installed", "restored"]


def test_the_loop_goes_on_after_a_restart(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    shift, adapted = AdaptationStorage(package).state().shift, current(package)
    camera.loop.close()
    again = Camera(package)
    assert AdaptationStorage(package).state().shift == pytest.approx(shift, abs=1e-3)
    assert current(package) == adapted
    again.shows(shuffled(IMAGES, 960))
    assert again.events[-1] == "restored"


def test_another_version_is_adapted_from_its_own_statistics(package, tmp_path):
    other = make_package(tmp_path / "other")
    manifest = Manifest.load(other)
    manifest.model_copy(update={"goal": "other"}).save(other)
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    version = install(package, other)
    camera.loop.step()
    assert current(package) == version
    camera.shows(shuffled(IMAGES, 480))
    assert current(package) == version


def test_a_base_that_was_installed_is_restored(package, tmp_path):
    version = install(package, make_package(tmp_path / "other"))
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    assert current(package) != version
    assert previous(package) == version
    camera.shows(shuffled(IMAGES, 960))
    assert current(package) == version


def test_a_collapse_rolls_back(package, monkeypatch):
    """A network whose predictions are all alike is never installed."""
    monkeypatch.setattr(loop, "has_collapsed", lambda adapted, shipped: True)
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 640)))
    assert set(camera.events) == {"rolled back"}
    assert current(package) == package
    assert {entry["event"] for entry in AdaptationStorage(package).history()} == {"rolled back"}


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_left_out(package, wrong):
    """They come from a sensor that fails for a moment."""
    camera = Camera(package)
    images = dirty(shuffled(IMAGES, 480))
    images[::40] = wrong
    camera.shows(images)
    assert camera.events == ["installed"]
    assert AdaptationStorage(package).state().examples == 480 - 12


def test_there_are_at_most_two_inferences_for_each_example(package, monkeypatch):
    calls = []
    runs = loop.graph_observers

    def counted(*arguments):
        for graph in runs(*arguments):
            yield type(graph)(graph.norms, lambda *given, run=graph.run: calls.append(1) or run(*given))

    monkeypatch.setattr(loop, "graph_observers", lambda *arguments: list(counted(*arguments)))
    camera = Camera(package)
    for _ in range(4):
        camera.shows(dirty(shuffled(IMAGES, 160)))
        assert len(calls) <= 2 * AdaptationStorage(package).state().examples + 2 * 16
    assert len(calls) > AdaptationStorage(package).state().examples


def test_nothing_is_written_while_no_app_runs(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 32)))
    directory = state_directory(package) / "adaptation"
    before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    for _ in range(3):
        camera.loop.step()
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before
    camera.shows(dirty(shuffled(IMAGES, 32)))
    assert AdaptationStorage(package).state().examples == 64


@pytest.mark.parametrize("name", [ADAPTATION, STATISTICS])
def test_a_damaged_file_is_reported(package, name):
    (package / name).write_bytes(b"damaged")
    with pytest.raises(MistifyError, match="damaged") as error:
        Camera(package)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE


def test_numbers_that_do_not_fit_the_norms_are_reported(package):
    content = (package / STATISTICS).read_bytes()[:-4]
    (package / STATISTICS).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, STATISTICS: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)
    with pytest.raises(MistifyError, match=STATISTICS):
        Camera(package)


def test_a_package_without_norms_is_refused_with_the_reason(tmp_path):
    package = make_package(tmp_path / "package", "trainable")
    with pytest.raises(MistifyError, match=r'"tuning": \{"adaptation": true\}') as error:
        Camera(package)
    assert error.value.code is ErrorCode.NOT_FOUND


def test_damaged_state_counts_as_missing(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 64)))
    camera.loop.close()
    for path in (state_directory(package) / "adaptation").iterdir():
        path.write_bytes(b"\0damaged")
    again = Camera(package)
    assert AdaptationStorage(package).state().shift == 0
    again.shows(shuffled(IMAGES, 32))


def test_files_of_the_adapted_version_are_described(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    manifest, shipped = Manifest.load(current(package)), Manifest.load(package)
    changed = {name for name in manifest.files if manifest.files[name] != shipped.files[name]}
    assert changed == {NETWORK, ADAPTATION}
    assert manifest.accuracy == shipped.accuracy


def first_norm(**changes):
    """Return a change of the first norm of a description."""

    def changed(store):
        first, *others = store.norms
        return {"norms": (first.model_copy(update=changes), *others)}

    return changed


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (first_norm(operators=((0, 999),)), "at 999 in graph 0"),
        (first_norm(operators=((99, 0),)), "at 0 in graph 99"),
        (first_norm(operators=((0, 1),)), "no linear operator of"),
        (first_norm(channels=7), "no linear operator of 7 channels"),
        (lambda store: {"output": "letter"}, 'no output "letter"'),
        (lambda store: {"classes": 3}, "for 3 classes"),
        (lambda store: {"kind": OutputEncoding.LOGIT}, "for 10 classes"),
    ],
)
def test_a_description_that_does_not_fit_the_network_is_reported_before_anything_runs(
    package, changed, problem
):
    store = AdaptationStore.of(Package.open(package))
    content = store.model_copy(update=changed(store)).as_json()
    (package / ADAPTATION).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, ADAPTATION: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)
    with pytest.raises(MistifyError) as error:
        Camera(package).shows(IMAGES[:32])
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
    assert error.value.problems[0].place == str(package / ADAPTATION)
    assert problem in error.value.problems[0].value
