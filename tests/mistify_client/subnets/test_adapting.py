"""Packages that are adapted to a device, and what failures and crashes leave of them."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from mistify.config.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.parsing.quantities import parse_time
from mistify_client.assembly.chaining import ChosenBlocks, load_chain
from mistify_client.assembly.paging import CHOSEN, PagedNetwork
from mistify_client.assembly.pool import POOL, SubnetPool
from mistify_client.files import held_alone
from mistify_client.runtime.model import load
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.adapting import MOST_EXAMPLES, TABLES, adapt
from mistify_client.subnets.search import Strategy
from mistify_client.subnets.space import SubnetSpace
from tests import elastic_stores
from tests.block_stores import images
from tests.disks import files_limited_to
from tests.mistify_client.pools import make_block_package
from tests.mistify_client.subnets.test_scores import in_keras

TABLE = "latency-interpreter-1.json"


@pytest.fixture
def package(tmp_path):
    elastic_stores.write(tmp_path / "package")
    return tmp_path / "package"


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
    return adapt(package, data, parse_time(latency), seconds=1e-6, **settings)


def test_a_tuned_package_is_refused_before_anything_is_measured(tmp_path, data):
    """Its blocks are those of before, so that nothing would run what is chosen."""
    package = make_block_package(tmp_path / "tuned")
    Manifest.load(package).model_copy(update={"tuned_from": "0" * 64}).save(package)
    with pytest.raises(MistifyError, match=r"was tuned on this device.*roll_back") as caught:
        adapted(package, data)
    assert caught.value.code is ErrorCode.CONFLICT
    assert not state_directory(package).exists()


def content_of(directory):
    """All files of a directory, and of those in it, with their contents."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def chosen_files(package):
    """What a paged network runs when it is loaded."""
    state = state_directory(package)
    pool = SubnetPool.load(state, package)
    choices = [ChosenBlocks(files=entry.files, execution=pool.execution) for entry in pool.entries]
    original = ChosenBlocks(files=tuple(one.file for one in space_of(package).original))
    network = PagedNetwork(package, state, choices, original, 1)
    network.close()
    return network.running.files


def space_of(package):
    return SubnetSpace(elastic_stores.BlockStore.load(package))


@pytest.mark.parametrize("strategy", Strategy)
def test_what_runs_next_is_the_best_within_the_budget(package, data, device_data, strategy):
    before = content_of(package)
    result = adapted(package, data, strategy=strategy)
    pool, images, classes = result.pool, *device_data
    assert chosen_files(package) == result.chosen.files
    assert result.chosen.latency_ms <= pool.budget_ms == pytest.approx(0.9 * pool.original_ms)
    assert pool.metric is Metric.ACCURACY
    assert pool.examples == len(images)
    for entry in (result.original, *pool.entries):
        outputs = in_keras(space_of(package).store.network_of(entry.files), images)
        assert entry.accuracy == pytest.approx(np.mean(outputs.argmax(1) == classes))
    assert SubnetPool.load(state_directory(package), package) == pool
    assert content_of(package) == before


def test_additive_is_nearly_as_good_as_the_best_of_all(package, data, device_data):
    """Brute force: all 33 subnets in Keras, by the table."""
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


def test_without_labels_subnets_agree_with_the_original(package, unlabelled):
    result = adapted(package, unlabelled, "1x")
    assert result.pool.metric is Metric.AGREEMENT
    assert result.original.accuracy == 1
    assert result.chosen == result.pool.best() == result.pool.entries[-1]


def test_of_many_examples_some_are_scored(package, tmp_path, device_data):
    images = np.repeat(device_data[0], 2, axis=0)
    np.savez(tmp_path / "many.npz", x=images)
    assert len(images) > MOST_EXAMPLES
    assert adapted(package, tmp_path / "many.npz").pool.examples == MOST_EXAMPLES


def test_models_that_run_learn_of_it(package, unlabelled):
    state_directory(package).mkdir()
    switchboard = Switchboard.open(state_directory(package))
    before = switchboard.generation
    adapted(package, unlabelled)
    assert switchboard.generation != before


def test_an_app_runs_what_was_chosen(tmp_path):
    package = make_block_package(tmp_path / "package")
    np.savez(tmp_path / "images.npz", x=images(20))
    model = load(package)
    assert len(model.options) == 1
    result = adapted(package, tmp_path / "images.npz", "1x")
    model = load(package)
    assert [option.blocks.files for option in model.options] == [entry.files for entry in result.pool.entries]
    assert model.options[model.running].blocks.files == result.chosen.files
    expected = load_chain(package, result.chosen.files, 1)({"image": images(2)})["scores"]
    np.testing.assert_array_equal(model(images(2)), expected)


def test_an_adapted_package_is_adapted_again(package, data, unlabelled):
    adapted(package, data)
    table = (state_directory(package) / TABLES / TABLE).read_bytes()
    lines = []
    result = adapted(package, unlabelled, "0.7x", tell=lines.append)
    assert lines == ["searching 33 subnets on 50 examples"]
    assert (state_directory(package) / TABLES / TABLE).read_bytes() == table
    assert chosen_files(package) == result.chosen.files


def test_a_latency_below_that_of_every_subnet_is_refused(package, unlabelled):
    with pytest.raises(MistifyError, match=r"--latency: got 0\.1x .* the fastest subnet takes") as caught:
        adapted(package, unlabelled, "0.1x")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_package_without_blocks_is_refused(tmp_path, unlabelled):
    with pytest.raises(MistifyError, match=r"no blocks\.json") as caught:
        adapted(tmp_path, unlabelled)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_only_one_process_adapts_a_package(package, unlabelled):
    (state_directory(package) / TABLES).mkdir(parents=True)
    with (
        held_alone(state_directory(package) / TABLES, ""),
        pytest.raises(MistifyError, match="being adapted already") as caught,
    ):
        adapted(package, unlabelled)
    assert caught.value.code is ErrorCode.CONFLICT


def break_data(package, data):
    np.savez(data, x=np.zeros((5, 9, 9, 1), np.float32))


def break_labels(package, data):
    np.savez(data, x=np.zeros((5, 8, 8, 1), np.float32), y=np.full(5, 10))


def break_block(package, data):
    path = package / "block-3-merge2.tflite"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("fault", [break_data, break_labels, break_block])
@pytest.mark.parametrize("adapted_before", [False, True])
def test_a_failure_leaves_all_as_it_was(package, unlabelled, fault, adapted_before):
    state = state_directory(package)
    if adapted_before:
        adapted(package, unlabelled, "1x")
    fault(package, unlabelled)
    before = content_of(package), content_of(state)
    with pytest.raises(MistifyError):
        adapted(package, unlabelled)
    assert (content_of(package), content_of(state)) == before


def test_a_full_disk_leaves_the_old_pool_and_the_old_choice(package, unlabelled):
    adapted(package, unlabelled, "1x")
    state = state_directory(package)
    before = {name: content for name, content in content_of(state).items() if not name.endswith(".part")}
    with files_limited_to(500), pytest.raises(OSError, match="File too large"):
        adapted(package, unlabelled)
    after = content_of(state)
    assert {name: after[name] for name in before} == before
    assert chosen_files(package)


#: Adapts a package again and again, killed each time when it comes to another file; prints what is left as
#: JSON. An audit hook counts what a process does with files: all that writes is a point to be killed at, and
#: each tenth that reads.
KILLED = """
import json, os, signal, sys
from pathlib import Path
from mistify.parsing.quantities import parse_time
from mistify_client.subnets.adapting import adapt

root, data = Path(sys.argv[1]), Path(sys.argv[2])
package, state = root / "package", root / "package.state"
adapt(package, data, parse_time("1x"), seconds=1e-6)
table = next(state.glob("subnets/latency-*"))
tables = [table.read_bytes(), None]
old = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}


def points(event, arguments):
    name = str(arguments[0]) if arguments else ""
    if not name.startswith(str(root)):
        return None
    if event in ("os.rename", "os.mkdir", "os.remove"):
        return "writes"
    if event == "open":
        return "writes" if arguments[2] & (os.O_WRONLY | os.O_RDWR) else "reads"
    return None


def run(point):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = {"writes": 0, "reads": 0}

    def kill(event, arguments):
        kind = points(event, arguments)
        if kind is not None:
            seen[kind] += 1
            if (kind, seen[kind]) == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    adapt(package, data, parse_time("0.9x"), seconds=1e-6)
    os._exit(0)


for kind, step in (("writes", 1), ("reads", 10)):
    number, status = 1, signal.SIGKILL
    while status:
        for path in state.rglob("*"):
            if path.is_file():
                path.unlink()
        for path, content in old.items():
            path.write_bytes(content)
        if number % 2:
            table.unlink()
        status = run((kind, number))
        print(json.dumps([kind, number, status]))
        print(json.dumps({str(path.relative_to(root)): path.read_text()
                          for path in sorted(state.rglob("*")) if path.suffix == ".json"}))
        number += step
"""


def test_sigkill_at_any_point_leaves_the_old_or_the_new(package, unlabelled):
    old = adapted(package, unlabelled, "1x")
    before = content_of(package)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(package.parent), str(unlabelled)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kills = list(zip(lines[::2], lines[1::2], strict=True))
    assert [status for (_, _, status), _ in kills].count(0) == 2  # both series came to their ends
    for (kind, number, status), files in kills:
        place = f"{kind} {number}"
        chosen = json.loads(files[f"package.state/{CHOSEN}"])["files"]
        pool = SubnetPool.model_validate_json(files[f"package.state/{POOL}"])
        share = pool.budget_ms / pool.original_ms
        assert share == pytest.approx(1) or share == pytest.approx(0.9), place
        if share > 0.95:
            assert status == signal.SIGKILL, place
            assert tuple(chosen) == old.chosen.files, place
        else:
            assert tuple(chosen) in (old.chosen.files, pool.best().files), place
            assert status or tuple(chosen) == pool.best().files, place
    shares = [json.loads(files[f"package.state/{POOL}"])["budget_ms"] for _, files in kills]
    assert len(set(shares)) > 1
    assert content_of(package) == before
    again = adapted(package, unlabelled)
    assert chosen_files(package) == again.chosen.files
