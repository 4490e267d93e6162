"""The slices that a device offers for a package's task: a Pareto front of quality and predicted latency."""

import json
import os

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.package.adaptation import ADAPTATION
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.records import PackagedFile
from mistify.tflite.memory import memory_bytes
from mistify_client.assembly.ladder import SLICES, SliceLadder
from mistify_client.files import held_alone
from mistify_client.runtime.options import options_of
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, open_current, state_directory
from mistify_client.slicing.customizing import SliceRequest, customize
from mistify_client.slicing.cutting import cut_slice
from mistify_client.slicing.latencies import SliceLatencies
from mistify_client.slicing.offering import compared, front, offer_slices
from tests.mistify_client.ladders import OWN_ACCURACY, TASK, make_serving_package, rung
from tests.mistify_client.monitor.conftest import three_branches
from tests.support.factories import QUALITY, make_package
from tests.support.paths import DATA


@pytest.fixture
def package(tmp_path):
    return make_serving_package(tmp_path / "package")


def offered(package):
    return offer_slices(package, seconds=1e-3)


def rungs_of(package, pairs):
    """Return slices with the given latency and quality."""
    any_slice = rung(package, 0.5)
    return [
        any_slice.model_copy(update={"limit": (number + 1) / 100, "latency_ms": ms, "quality": quality})
        for number, (ms, quality) in enumerate(pairs)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_exactly_the_slices_that_no_other_network_dominates_are_kept(package, seed):
    """The reference compares all pairs. Values differ by more than what counts as equal."""
    rng = np.random.default_rng(seed)
    latencies, qualities = 1.5 ** rng.permutation(7), 0.5 + 0.05 * rng.permutation(7)
    (own_ms, *latencies), (own_score, *qualities) = latencies.tolist(), qualities.tolist()
    all_of_them = [*zip(latencies, qualities, strict=True), (own_ms, own_score)]
    expected = [
        (ms, quality)
        for ms, quality in all_of_them[:-1]
        if not any(ms > other and quality < better for other, better in all_of_them)
    ]
    kept = front(rungs_of(package, all_of_them[:-1]), own_ms, own_score)
    assert [(one.latency_ms, one.quality) for one in kept] == expected


@pytest.mark.parametrize(
    ("ms", "quality", "kept"),
    [(9.6, 0.8, False), (9.4, 0.8, True), (12.0, 0.804, False), (12.0, 0.806, True), (9.4, 0.79, True)],
)
def test_a_slice_that_hardly_differs_from_the_own_network_is_left_out(package, ms, quality, kept):
    assert bool(front(rungs_of(package, [(ms, quality)]), 10.0, 0.8)) is kept


def test_of_slices_as_good_the_fastest_is_kept(package):
    kept = front(rungs_of(package, [(3.0, 0.7), (2.0, 0.7), (1.95, 0.69)]), 10.0, 0.8)
    assert [one.latency_ms for one in kept] == [2.0]


def test_scores_are_moved_to_the_measured_one_of_the_own_network(package):
    """A slice with as much memory would be expected to have 0.7."""
    one, other = rungs_of(package, [(1.0, 0.6), (2.0, 0.8)])
    one = one.model_copy(update={"memory_bytes": 100.0})
    other = other.model_copy(update={"memory_bytes": 300.0})
    moved = compared([one, other], 200.0, 0.95)
    assert [each.quality for each in moved] == pytest.approx([0.85, 1.0])
    assert [each.quality for each in compared([other, one], 900.0, 0.8)] == pytest.approx([0.8, 0.6])


def test_the_ladder_has_predicted_latencies_and_expected_qualities(package):
    ladder, state = offered(package), state_directory(package)
    assert ladder.rungs
    assert {one.limit for one in ladder.rungs} <= {0.1, 0.25, 0.5, 1.0}
    table = SliceLatencies.model_validate_json((state / SLICES / "latency-1.json").read_bytes())
    for one in ladder.rungs:
        network = cut_slice(package, one)
        assert one.quality == pytest.approx(QUALITY.expected(one.limit))
        assert (one.memory_bytes, one.size_bytes) == (memory_bytes(network), len(network))
        assert one.latency_ms >= 0.5 * min(table.latencies_ms)
    pairs = [(one.latency_ms, one.quality) for one in ladder.rungs] + [(ladder.own_ms, OWN_ACCURACY)]
    for ms, quality in pairs[:-1]:
        assert not any(ms > other and quality < better for other, better in pairs)
    assert (ladder.task, ladder.threads) == (TASK, 1)


def test_slices_are_options_after_the_own_network_which_runs_first(package):
    before = Switchboard.open(state_directory(package)).generation
    ladder = offered(package)
    options = options_of(open_current(package), state_directory(package))
    assert options.ids == ("branch-0", *(one.id for one in ladder.rungs))
    assert (options.default, options.hardware, options.ladder) == (0, "this device", ladder)
    assert Switchboard.open(state_directory(package)).generation == before + 1 == ladder.generation


def test_a_slice_that_was_installed_has_a_ladder_of_the_package_that_was_shipped(tmp_path):
    package = make_package(tmp_path / "package")
    result = customize(package, SliceRequest("has,4", limit=0.5), seconds=1e-3)
    ladder = offered(package)
    assert ladder.task == "has, 4"
    assert ladder.package == open_current(package).digest
    assert current(package) == result.directory
    assert all(cut_slice(package, one) for one in ladder.rungs)


def test_latencies_are_measured_once(package):
    offered(package)
    table = state_directory(package) / SLICES / "latency-1.json"
    before = table.read_bytes()
    offered(package)
    assert table.read_bytes() == before


def test_a_measured_accuracy_moves_the_scores_of_slices(package):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"accuracy_examples": 100, "validation_accuracy": 0.5}).save(package)
    lowered = offered(package)
    assert lowered.rungs
    assert all(one.quality < QUALITY.expected(one.limit) - 0.2 for one in lowered.rungs)


def task_is(package, task):
    Manifest.load(package).model_copy(update={"task": task}).save(package)


def without_factory(package):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {NETWORK: manifest.files[NETWORK]}}).save(package)


def with_other_scales(package):
    manifest = Manifest.load(package)
    info = manifest.inputs[0].model_copy(update={"scale": 0.5, "zero_point": 1})
    manifest.model_copy(update={"inputs": (info,)}).save(package)


def with_branches(package):
    Manifest.load(package).model_copy(update={"branches": three_branches().branches}).save(package)


def adapted(package):
    """Describe a package as one that was adapted to the data of its place."""
    store = json.loads((DATA / "adaptable" / ADAPTATION).read_bytes())
    content = json.dumps(store | {"adapted_from": "0" * 64}).encode()
    (package / ADAPTATION).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, ADAPTATION: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)


def damaged(name):
    def damage(package):
        content = (package / name).read_bytes()
        (package / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return damage


@pytest.mark.parametrize(
    ("harm", "code", "message"),
    [
        (without_factory, ErrorCode.NOT_FOUND, r'has no assembler.*"inside": true'),
        (
            lambda package: task_is(package, None),
            ErrorCode.NOT_FOUND,
            "serves no single task; mistify customize",
        ),
        (
            lambda package: task_is(package, TaskConfig(properties=("exactly:9", "odd"))),
            ErrorCode.INVALID_CONFIG,
            'got "exactly:9"',
        ),
        (with_other_scales, ErrorCode.INVALID_MODEL, "other inputs or outputs"),
        (
            lambda package: Manifest.load(package).model_copy(update={"metric": Metric.MSE}).save(package),
            ErrorCode.NOT_FOUND,
            "is scored by mse",
        ),
        (adapted, ErrorCode.NOT_FOUND, "is adapted to the data of its place"),
        (damaged(SUPERNET), ErrorCode.CORRUPT_PACKAGE, SUPERNET),
        (damaged(ASSEMBLER), ErrorCode.CORRUPT_PACKAGE, ASSEMBLER),
        (damaged(FACTORY), ErrorCode.CORRUPT_PACKAGE, FACTORY),
        (damaged(NETWORK), ErrorCode.CORRUPT_PACKAGE, NETWORK),
    ],
)
def test_packages_that_cannot_have_slices_are_refused_and_keep_their_options(package, harm, code, message):
    harm(package)
    with pytest.raises(MistifyError, match=message) as error:
        offered(package)
    assert error.value.code is code
    assert options_of(open_current(package), state_directory(package)).ids == ("branch-0",)


def test_a_package_with_branches_has_no_slices(package):
    with_branches(package)
    with pytest.raises(MistifyError, match="has branches, which are its options") as error:
        offered(package)
    assert error.value.code is ErrorCode.NOT_FOUND


def test_slices_are_not_offered_while_the_package_is_customized(package):
    directory = state_directory(package) / SLICES
    directory.mkdir(parents=True)
    with held_alone(directory, "test"), pytest.raises(MistifyError) as error:
        offered(package)
    assert error.value.code is ErrorCode.CONFLICT


def test_a_slice_of_another_factory_is_not_cut(package):
    other = rung(package, 0.25).model_copy(update={"key": "0" * 32})
    with pytest.raises(MistifyError, match=r"slice-0\.25 is of another network") as error:
        cut_slice(package, other)
    assert error.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize(
    ("content", "logged"),
    [
        ("{", "the ladder of slices cannot be read"),
        ('{"format_version": 9}', "remove it; the monitor makes it"),
    ],
)
def test_a_damaged_ladder_leaves_the_own_network(package, content, logged, caplog):
    offered(package)
    (state_directory(package) / SliceLadder.FILE).write_text(content)
    assert options_of(open_current(package), state_directory(package)).ids == ("branch-0",)
    assert logged in caplog.text


def test_the_ladder_of_another_version_does_not_count(package):
    ladder = offered(package)
    task_is(package, TaskConfig(properties=("has", "4")))
    assert options_of(open_current(package), state_directory(package)).ladder is None
    content = json.loads((state_directory(package) / SliceLadder.FILE).read_bytes())
    assert content["package"] == ladder.package


def test_a_ladder_without_slices_changes_no_options(package):
    own = options_of(open_current(package), state_directory(package))
    ladder = offered(package).model_copy(update={"rungs": ()})
    ladder.save(state_directory(package))
    options = options_of(open_current(package), state_directory(package))
    assert (options.options, options.paged, options.ladder) == (own.options, False, ladder)


def test_a_state_that_cannot_be_written_is_reported(package):
    os.mkfifo(state_directory(package))
    with pytest.raises(MistifyError) as error:
        offered(package)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
