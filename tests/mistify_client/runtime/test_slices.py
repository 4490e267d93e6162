"""Apps whose package has a ladder of slices: the own network runs until the chosen slice has been cut."""

import threading

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.errors import MistifyError
from mistify.package.factory import SUPERNET
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client import load
from mistify_client.assembly.ladder import CUT, SliceLadder
from mistify_client.assembly.paged_slices import PagedSlices, SliceFiles
from mistify_client.runtime.options import OptionScore
from mistify_client.runtime.paged import RETRY_SECONDS, PagedOptions
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import open_current, roll_back, state_directory
from mistify_client.slicing.customizing import SliceRequest, customize
from mistify_client.slicing.cutting import main as cut
from tests.mistify_client.ladders import (
    LATENCIES,
    OWN_ACCURACY,
    OWN_MS,
    TASK,
    answers,
    make_serving_package,
    write_ladder,
)
from tests.support.disks import files_limited_to
from tests.support.factories import QUALITY, expected, images, make_package

SMALL = 0.1


@pytest.fixture
def package(tmp_path):
    package = make_serving_package(tmp_path / "package")
    write_ladder(package)
    return package


def own(package, count=16):
    """Return what the package's own network answers."""
    plain = package.with_name("plain")
    if not plain.exists():
        make_package(plain)
    return load(plain)(images(count))


def files_of(package):
    directory = state_directory(package) / CUT
    return sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns) if directory.exists() else []


def finish_loading(model):
    """Wait until no network is being loaded."""
    model._loaded.network._network._loader.submit(lambda: None).result()


def switched(model, option):
    model.switch(option)
    model(images(1))
    finish_loading(model)
    return model


def test_the_options_are_the_own_network_and_the_slices_of_the_ladder(package):
    model = load(package)
    assert [(each.id, each.kind, each.costs.latency_ms) for each in model.options] == [
        ("branch-0", "branch", OWN_MS),
        *((f"slice-{limit:g}", "slice", ms) for limit, ms in LATENCIES.items()),
    ]
    own_option, *slices = model.options
    assert own_option.score == OptionScore(OWN_ACCURACY, Metric.BALANCED_ACCURACY)
    assert [each.score for each in slices] == [
        OptionScore(QUALITY.expected(limit), Metric.BALANCED_ACCURACY) for limit in LATENCIES
    ]
    assert [(each.costs.memory_bytes, each.costs.size_bytes) for each in slices] == [
        (1e5 * limit, 8e4 * limit) for limit in LATENCIES
    ]
    assert {each.engine.threads for each in model.options} == {1}
    assert (model.wanted, model.running) == ("branch-0", "branch-0")
    np.testing.assert_allclose(model(images(16)), own(package), atol=1e-6)
    assert files_of(package) == []


def test_a_chosen_slice_is_cut_while_the_own_network_runs(package):
    model, reference = load(package, task=TASK), expected(TASK, SMALL)
    before = model(images(16))
    model.switch("slice-0.1")
    np.testing.assert_array_equal(model(images(16)), before)  # a process has to start first
    assert model.wanted == "slice-0.1"
    finish_loading(model)
    assert model.running == "slice-0.1"
    assert np.abs(model(images(16)) - reference).max() <= 1e-5 * np.abs(reference).max()
    (seen,) = observed(state_directory(package))
    assert seen.inferences["option"].tolist() == [0, 0, 1]
    np.testing.assert_array_equal(switched(model, "branch-0")(images(16)), before)


def test_a_slice_that_has_been_cut_is_loaded_when_the_package_is_loaded_again(package):
    load(package).switch("slice-0.1")
    cut(str(package), "slice-0.1")
    before = files_of(package)
    again = load(package)
    assert (again.wanted, again.running) == ("slice-0.1", "slice-0.1")
    np.testing.assert_array_equal(again(images(4)), answers(package, SMALL, images(4)))
    assert files_of(package) == before


def test_a_slice_that_has_not_been_cut_does_not_delay_an_app_that_is_loaded(package, caplog):
    load(package).switch("slice-0.1")
    model = load(package)
    assert (model.wanted, model.running) == ("slice-0.1", "branch-0")
    assert "slice-0.1 cannot be loaded, branch-0 runs at first: it has not been cut" in caplog.text
    np.testing.assert_array_equal(model(images(4)), own(package, 4))
    finish_loading(model)
    np.testing.assert_array_equal(model(images(4)), answers(package, SMALL, images(4)))


@pytest.mark.parametrize("harm", [lambda content: content[:-1], lambda content: content[:-1] + b"x"])
def test_a_damaged_slice_is_noticed_and_cut_again(package, harm, caplog):
    cut(str(package), "slice-0.1")
    (file,) = files_of(package)
    content = file.read_bytes()
    file.write_bytes(harm(content))
    model = switched(load(package), "slice-0.1")
    assert "slice-0.1 is cut again" in caplog.text
    assert str(file) in caplog.text
    assert model.running == "slice-0.1"
    np.testing.assert_array_equal(model(images(4)), answers(package, SMALL, images(4)))
    assert [path.read_bytes() for path in files_of(package)] == [content]


def test_only_the_two_most_recently_used_slices_are_kept(package):
    for option in ("slice-0.1", "slice-0.25"):
        cut(str(package), option)
    first, second = files_of(package)
    switched(load(package), "slice-0.1")
    cut(str(package), "slice-0.5")
    kept = files_of(package)
    assert len(kept) == 2
    assert first in kept
    assert second not in kept


def paged(package, clock):
    """Open the options of a package without a switchboard."""
    files = SliceFiles(
        package,
        open_current(package),
        state_directory(package),
        {one.id: one.key for one in SliceLadder.of(open_current(package), state_directory(package)).rungs},
    )
    network = PagedSlices(files, "branch-0", 1)
    ids = ("branch-0", *files.keys)
    return network, PagedOptions(files.version.manifest, {id: id for id in ids}, network, 1, clock)


def test_the_own_network_runs_until_a_damaged_supernet_is_repaired(package, caplog):
    content = (package / SUPERNET).read_bytes()
    (package / SUPERNET).write_bytes(content[:-1])
    now = 0.0
    network, options = paged(package, lambda: now)

    def run():
        """Run an inference, wait until nothing is being loaded, and return the option that ran."""
        values = {"image": images(2)}
        outputs, option, *_ = options.prepared(values)(values, 1)
        network._loader.submit(lambda: None).result()
        reference = answers(package, SMALL, images(2)) if option else own(package, 2)
        np.testing.assert_array_equal(outputs["answer"], reference)
        return option

    assert run() == 0
    assert "slice-0.1 cannot be loaded, so the current one keeps running" in caplog.text
    assert str(package / SUPERNET) in caplog.text
    assert files_of(package) == []
    (package / SUPERNET).write_bytes(content)
    now = RETRY_SECONDS - 1
    assert [run(), run()] == [0, 0]
    now = RETRY_SECONDS
    assert [run(), run()] == [0, 1]
    network.close()


def test_the_own_network_runs_on_a_full_disk(package, caplog):
    model = load(package)
    with files_limited_to(1_000):
        switched(model, "slice-0.1")
    assert model.running == "branch-0"
    assert "slice-0.1 cannot be cut" in caplog.text
    cut(str(package), "slice-0.1")
    assert [path.suffix for path in files_of(package)] == [".tflite"]  # the attempt leaves no files


def test_no_inference_is_dropped_or_mixed_while_slices_are_switched(package):
    for option in ("slice-0.1", "slice-0.25"):
        cut(str(package), option)
    model, seen, stop = load(package), [], threading.Event()
    right = {own(package, 2).tobytes()}
    right |= {answers(package, limit, images(2)).tobytes() for limit in (0.1, 0.25)}
    assert len(right) == 3

    def run():
        while not stop.is_set():
            seen.append(model(images(2)).tobytes())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    waits = 0
    for option in ("slice-0.1", "slice-0.25", "branch-0") * 2:
        model.switch(option)
        while model.running != option:
            assert model(images(2)).tobytes() in right
            waits += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) <= right
    assert sum(model.statistics().counts.values()) == len(seen) + waits


def test_int8_slices_run_with_the_scales_of_their_network(tmp_path):
    package = make_serving_package(tmp_path / "package", "factory_int8")
    write_ladder(package)
    cut(str(package), "slice-0.1")
    model = switched(load(package), "slice-0.1")
    assert model.running == "slice-0.1"
    np.testing.assert_array_equal(model(images(4)), answers(package, SMALL, images(4)))


def test_an_installed_slice_is_the_own_network_of_its_ladder(tmp_path):
    package = make_package(tmp_path / "package")
    customize(package, SliceRequest(TASK, limit=0.5), seconds=1e-3)
    write_ladder(package)
    model = load(package, task=TASK)
    before = model(images(4))
    np.testing.assert_array_equal(switched(model, "slice-0.1")(images(4)), answers(package, SMALL, images(4)))
    assert model.manifest == open_current(package).manifest
    np.testing.assert_array_equal(switched(model, "branch-0")(images(4)), before)
    roll_back(package)
    assert [each.id for each in load(package).options] == ["branch-0"]


def test_an_unannounced_ladder_is_announced_by_its_first_reader(package):
    """Its writer was killed. Running and new apps agree on the options."""
    model = load(package)
    model.switch("slice-0.25")
    write_ladder(package, {0.5: 5.0}, generation=1)
    fresh = load(package)
    assert (fresh.wanted, [each.id for each in fresh.options]) == ("branch-0", ["branch-0", "slice-0.5"])
    assert Switchboard.open(state_directory(package)).generation == 1
    model(images(1))
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    assert (model.options, model.wanted) == (fresh.options, "branch-0")


def test_a_package_with_a_ladder_needs_its_own_network(package):
    (package / NETWORK).write_bytes(b"damaged")
    with pytest.raises(MistifyError, match=NETWORK):
        load(package)


def test_a_state_from_before_ladders_is_as_it_was(tmp_path):
    """The switchboard has a number that no option has."""
    package = make_serving_package(tmp_path / "package")
    Switchboard.open(state_directory(package)).option = 3
    model = load(package)
    assert [each.id for each in model.options] == ["branch-0"]
    assert model.options[0].costs.latency_ms == Package.open(package).manifest.latency.median_ms
    assert model.running == "branch-0"


@pytest.mark.parametrize(
    ("option", "message"), [("slice-0.7", "offers no slice-0.7"), ("branch-0", "offers no branch-0")]
)
def test_an_unknown_slice_is_refused_by_the_program_that_cuts(package, option, message):
    with pytest.raises(SystemExit, match=message):
        cut(str(package), option)
