"""Adapting packages to a device, and the effects of failures and crashes."""

import json

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BLOCKS
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.training import OutputEncoding
from mistify.parsing.quantities import parse_time
from mistify_client import load
from mistify_client.assembly.pool import SubnetPool
from mistify_client.files import held_alone
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, install, state_directory
from mistify_client.subnets.search.strategies import Strategy
from mistify_client.subnets.search_session import MOST_EXAMPLES, TABLES, adapt
from mistify_client.subnets.space import SubnetSpace
from tests.mistify_client.chains import load_chain
from tests.mistify_client.pools import make_block_package, make_elastic_package, set_latencies
from tests.mistify_client.subnets.scoring.test_scores import in_keras
from tests.support import elastic_stores
from tests.support.block_stores import images
from tests.support.disks import files_limited_to

TABLE = "latency-interpreter-1.json"


@pytest.fixture
def package(tmp_path):
    """Return a package whose blocks have known latencies, as noise would change what is found."""
    package = make_elastic_package(tmp_path / "package")
    set_latencies(package)
    return package


@pytest.fixture
def data(tmp_path, device_data):
    images, classes = device_data
    np.savez(tmp_path / "mine.npz", x=images, y=classes)
    return tmp_path / "mine.npz"


@pytest.fixture
def unlabelled(tmp_path, device_data):
    np.savez(tmp_path / "unlabelled.npz", image=device_data[0][:50])
    return tmp_path / "unlabelled.npz"


def adapted(package, data, latency="0.9x", **settings):
    return adapt(package, data, parse_time(latency), seconds=1e-3, **settings)


def test_a_tuned_package_is_refused_before_anything_is_measured(tmp_path, data):
    """Its blocks still have the untuned weights."""
    package = make_block_package(tmp_path / "tuned")
    Manifest.load(package).model_copy(update={"tuned_from": "0" * 64}).save(package)
    with pytest.raises(MistifyError, match=r"was tuned on this device.*roll_back") as caught:
        adapted(package, data)
    assert caught.value.code is ErrorCode.CONFLICT
    assert not state_directory(package).exists()


def content_of(directory):
    """Return all files below a directory with their contents."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def chosen_files(package):
    """Return the files of the subnet that runs when the package is loaded."""
    model = load(package)
    return next(option.blocks for option in model.options if option.id == model.running)


def space_of(package):
    return SubnetSpace(elastic_stores.BlockStore.load(package))


def blocks_of(package, entry):
    """Return the blocks of a subnet; the package's own network is the original one."""
    space = space_of(package)
    return space.original if entry.files == (NETWORK,) else space.store.network_of(entry.files)


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", Strategy)
def test_the_best_subnet_within_the_budget_runs_next(package, data, device_data, strategy):
    before = content_of(package)
    result = adapted(package, data, strategy=strategy)
    pool, images, classes = result.pool, *device_data
    assert chosen_files(package) == result.chosen.files
    assert result.chosen.latency_ms <= pool.budget_ms == pytest.approx(0.9 * pool.original_ms)
    assert pool.metric is Metric.ACCURACY
    assert pool.examples == len(images)
    for entry in (result.original, *pool.entries):
        outputs = in_keras(blocks_of(package, entry), images)
        assert entry.accuracy == pytest.approx(np.mean(outputs.argmax(1) == classes))
    assert SubnetPool.load(state_directory(package), Package.open(package)) == pool
    assert content_of(package) == before


def test_additive_search_is_nearly_as_good_as_brute_force(package, data, device_data):
    """The reference evaluates all 33 subnets in Keras, with latencies from the table."""
    result = adapted(package, data)
    images, classes = device_data
    state = json.loads((state_directory(package) / TABLES / TABLE).read_text())["latencies_ms"]
    fitting = [
        subnet
        for subnet in space_of(package)
        if sum(state[block.content.sha256] for block in subnet) <= result.pool.budget_ms
    ]
    best = max(np.mean(in_keras(subnet, images).argmax(1) == classes) for subnet in fitting)
    assert result.chosen.accuracy >= best - 0.02
    assert result.scored < 33


@pytest.mark.parametrize("faster", [True, False], ids=["faster", "slower"])
def test_the_shipped_network_stays_unless_a_subnet_is_faster(package, unlabelled, faster):
    """The network is as accurate as the chain of the same blocks, so the latencies in the table decide."""
    shipped, original = load(package), space_of(package).original
    expected = shipped(elastic_stores.digits()[0][:20])
    set_shipped_latency(package, 0.8 if faster else 1.2)
    result = adapted(package, unlabelled, "1x")
    files = (NETWORK,), tuple(block.file for block in original)
    chosen, other = files if faster else reversed(files)
    assert (result.chosen.files, result.chosen.accuracy) == (chosen, 1)
    assert other not in [entry.files for entry in result.pool.entries]
    model = load(package)
    assert chosen_files(package) == chosen
    np.testing.assert_allclose(model(elastic_stores.digits()[0][:20]), expected, rtol=1e-4, atol=1e-6)


def set_shipped_latency(package, share):
    """Set the measured latency of the network in one file to a share of that of the original blocks."""
    file = state_directory(package) / TABLES / TABLE
    table = json.loads(file.read_text())
    latencies = table["latencies_ms"]
    chain_ms = sum(latencies[block.content.sha256] for block in space_of(package).original)
    latencies[Manifest.load(package).files[NETWORK].sha256] = share * chain_ms
    file.write_text(json.dumps(table))


def test_the_blocks_of_the_shipped_network_do_not_replace_it(package, unlabelled):
    """Stitched, they take equally long, so that the choice would be random."""
    original = tuple(block.file for block in space_of(package).original)
    store = elastic_stores.BlockStore.load(package).model_copy(update={"served": original})
    (package / BLOCKS).write_text(store.model_dump_json())
    result = adapted(package, unlabelled, "1x")
    files = [entry.files for entry in result.pool.entries]
    assert (NETWORK,) in files
    assert original not in files


def test_a_damaged_block_that_cannot_be_downloaded_is_left_out(package, unlabelled):
    (package / "block-3-merge2.tflite").write_bytes(b"damaged")
    lines = []
    result = adapted(package, unlabelled, on_progress=lines.append)
    assert "only those on the device are used" in lines[0]
    assert "block-3-merge2.tflite" in lines[0]
    assert not any("block-3-merge2.tflite" in entry.files for entry in result.pool.entries)


def test_the_pool_of_a_previous_package_is_ignored(package, unlabelled):
    """The new package has no blocks, but the old blocks and pool are still in its directory."""
    adapted(package, unlabelled)
    manifest = Manifest.load(package)
    files = {NETWORK: manifest.files[NETWORK]}
    manifest.model_copy(update={"files": files}).save(package)
    assert SubnetPool.load(state_directory(package), Package.open(package)) is None
    assert [option.kind for option in load(package).options] == ["branch"]
    with pytest.raises(MistifyError, match=r"has no blocks to make other networks") as caught:
        adapted(package, unlabelled)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_without_labels_subnets_are_scored_by_agreement_with_the_original(package, unlabelled):
    result = adapted(package, unlabelled, "1x")
    assert result.pool.metric is Metric.AGREEMENT
    assert result.original.accuracy == 1
    assert result.chosen == result.pool.best() == result.pool.entries[-1]


def test_unknown_binary_labels_do_not_count_even_as_floats(package, unlabelled, device_data):
    store = elastic_stores.BlockStore.load(package)
    (output,) = store.outputs
    answers = store.model_copy(update={"kinds": {output.name: OutputEncoding.LOGIT}})
    (package / BLOCKS).write_text(answers.model_dump_json())
    labels = np.random.default_rng(0).integers(-1, 2, (50, 10))
    accuracies = set()
    for dtype in (np.int64, np.float32):
        np.savez(unlabelled, image=device_data[0][:50], y=labels.astype(dtype))
        accuracies.add(adapted(package, unlabelled).original.accuracy)
    assert len(accuracies) == 1


def test_only_some_of_many_examples_are_scored(package, tmp_path, device_data):
    images = np.repeat(device_data[0], 2, axis=0)
    np.savez(tmp_path / "many.npz", x=images)
    assert len(images) > MOST_EXAMPLES
    assert adapted(package, tmp_path / "many.npz").pool.examples == MOST_EXAMPLES


def test_few_examples_cause_a_warning(package, tmp_path, device_data):
    np.savez(tmp_path / "few.npz", x=device_data[0][:5])
    lines = []
    adapted(package, tmp_path / "few.npz", on_progress=lines.append)
    assert lines[-1] == "searching 34 subnets on 5 examples, too few to tell them apart well"


def test_running_models_adopt_the_new_choice(package, unlabelled):
    switchboard = Switchboard.open(state_directory(package))
    before = switchboard.generation
    adapted(package, unlabelled)
    assert switchboard.generation != before


def test_an_app_runs_the_chosen_subnet(tmp_path):
    package = make_block_package(tmp_path / "package")
    np.savez(tmp_path / "images.npz", x=images(20))
    model = load(package)
    assert len(model.options) == 1
    result = adapted(package, tmp_path / "images.npz", "1x")
    model = load(package)
    assert [option.blocks for option in model.options] == [entry.files for entry in result.pool.entries]
    assert [option.blocks for option in model.options if option.id == model.running] == [result.chosen.files]
    expected = load_chain(package, result.chosen.files, 1)({"image": images(2)})["scores"]
    np.testing.assert_array_equal(model(images(2)), expected)


def test_blocks_are_measured_once(package, data, unlabelled):
    file = state_directory(package) / TABLES / TABLE
    file.unlink()
    lines = []
    adapted(package, data, on_progress=lines.append)
    assert lines[0] == "measuring 16 blocks"
    table, lines = file.read_bytes(), []
    result = adapted(package, unlabelled, "0.9x", on_progress=lines.append)
    assert lines[-1].startswith("searching ")
    assert not [line for line in lines if line.startswith("measuring")]
    assert file.read_bytes() == table
    assert chosen_files(package) == result.chosen.files


def test_subnets_found_by_an_earlier_search_stay_in_the_pool(package, data):
    """Additive search covers all latencies, evolution only those near the budget."""
    whole = adapted(package, data, "1x")
    again = adapted(package, data, "1x", strategy=Strategy.EVOLUTION)
    for entry in whole.pool.entries:
        assert any(
            other.latency_ms <= entry.latency_ms and other.accuracy >= entry.accuracy
            for other in again.pool.entries
        )
    assert (whole.pool.strategy, again.pool.strategy) == ("additive", "evolution")
    assert again.pool.data == str(data)


class Meanwhile:
    """A callback that installs another package when the search begins."""

    def __init__(self, package, other):
        self.package, self.other = package, other

    def __call__(self, line):
        if line.startswith("searching"):
            install(self.package, self.other)


def test_a_package_updated_during_the_search_is_not_changed(tmp_path, package, unlabelled):
    """The results belong to the previous version, whose blocks are not in the new one."""
    (tmp_path / "next").mkdir()
    other = make_elastic_package(tmp_path / "next" / "package")
    with pytest.raises(MistifyError, match="has another version") as caught:
        adapted(package, unlabelled, on_progress=Meanwhile(package, other))
    assert caught.value.code is ErrorCode.CONFLICT
    assert current(package) != package
    assert SubnetPool.load(state_directory(package), Package.open(package)) is None
    assert load(package).options[0].kind == "branch"


def test_a_latency_below_that_of_every_subnet_is_refused(package, unlabelled):
    with pytest.raises(MistifyError, match=r"--latency: got 0\.1x .* the fastest subnet takes") as caught:
        adapted(package, unlabelled, "0.1x")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_directory_without_a_package_is_refused(tmp_path, unlabelled):
    with pytest.raises(MistifyError, match=r"no manifest\.json") as caught:
        adapted(tmp_path, unlabelled)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_only_one_process_adapts_a_package(package, unlabelled):
    with (
        held_alone(state_directory(package) / TABLES, ""),
        pytest.raises(MistifyError, match="already being adapted") as caught,
    ):
        adapted(package, unlabelled)
    assert caught.value.code is ErrorCode.CONFLICT


def break_data(package, data):
    np.savez(data, x=np.zeros((5, 9, 9, 1), np.float32))


def break_labels(package, data):
    np.savez(data, x=np.zeros((5, 8, 8, 1), np.float32), y=np.full(5, 10))


def break_block(package, data):
    path = package / "block-3.tflite"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("metric", [Metric.MSE, Metric.MAE, Metric("pinball_error")])
@pytest.mark.parametrize("labelled", [False, True])
def test_regression_is_scored_by_the_metric_of_the_package(
    package, unlabelled, device_data, metric, labelled
):
    """Compared with Keras; without a metric, the score is the explained variance."""
    store = elastic_stores.BlockStore.load(package)
    (output,) = store.outputs
    figures = store.model_copy(update={"kinds": {output.name: OutputEncoding.FIGURES}})
    (package / BLOCKS).write_text(figures.model_dump_json())
    Manifest.load(package).model_copy(update={"metric": metric}).save(package)
    images = device_data[0][:50]
    right = in_keras(space_of(package).original, images)
    if labelled:
        right = right + np.random.default_rng(0).normal(size=right.shape).astype(np.float32)
        np.savez(unlabelled, image=images, y=right)
    pool = adapted(package, unlabelled).pool
    assert pool.metric is (Metric.MEAN_SCORE if metric.plugged_in else metric)
    expected = {Metric.MSE: mean_squared_error, Metric.MAE: mean_absolute_error}.get(
        metric, lambda right, output: max(0, r2_score(right, output, multioutput="variance_weighted"))
    )
    for entry in pool.entries:
        outputs = in_keras(blocks_of(package, entry), images)
        assert entry.accuracy == pytest.approx(expected(right, outputs), rel=1e-4, abs=1e-9)
    figures = [entry.accuracy for entry in pool.entries]
    assert figures == sorted(figures, reverse=not pool.metric.is_share)


@pytest.mark.parametrize("fault", [break_data, break_labels, break_block])
@pytest.mark.parametrize("adapted_before", [False, True])
def test_a_failure_changes_nothing(package, unlabelled, fault, adapted_before):
    state = state_directory(package)
    if adapted_before:
        adapted(package, unlabelled, "1x")
    fault(package, unlabelled)
    before = content_of(package), content_of(state)
    with pytest.raises(MistifyError):
        adapted(package, unlabelled)
    assert (content_of(package), content_of(state)) == before


def test_a_full_disk_keeps_the_old_pool_and_choice(package, unlabelled):
    adapted(package, unlabelled, "1x")
    state = state_directory(package)
    before = {name: content for name, content in content_of(state).items() if not name.endswith(".part")}
    with files_limited_to(500), pytest.raises(OSError, match="File too large"):
        adapted(package, unlabelled)
    after = content_of(state)
    assert {name: after[name] for name in before} == before
    assert chosen_files(package)
