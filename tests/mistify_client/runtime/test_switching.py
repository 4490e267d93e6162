"""Switching the branches of a running package, from this process and from others."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client import PortedModel, load
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import install, state_directory
from tests.support.disks import files_limited_to
from tests.support.permissions import permissions_obeyed

#: Runs an inference for each line of input, and prints the scores.
SERVE = """
import json, sys
import numpy as np
import mistify_client
model = mistify_client.load(sys.argv[1])
image = np.load(sys.argv[2])["image"]
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(model(image).tolist()), flush=True)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a directory that every user can enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def by_branch(model: PortedModel, image: np.ndarray) -> list[np.ndarray]:
    """Return the scores of each branch."""
    actual = []
    for option in model.options:
        model.switch(option.id)
        actual.append(model(image))
    return actual


def matching(scores: np.ndarray, candidates: list[np.ndarray]) -> int:
    """Return the number of the candidate that equals the scores."""
    (equal,) = [n for n, candidate in enumerate(candidates) if np.array_equal(scores, candidate)]
    return equal


def test_every_branch_agrees_with_tensorflow(branch_package, expected):
    model = load(branch_package)
    for scores, wanted in zip(by_branch(model, expected["image"]), expected["branches"], strict=True):
        np.testing.assert_allclose(scores, wanted, atol=1e-6)


def test_the_default_branch_runs_until_a_switch(branch_package, expected):
    model = load(branch_package)
    assert [branch.accuracy for branch in model.branches] == [0.6, 0.75, 0.8]
    assert model.wanted == "branch-1"
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)


def test_a_switch_is_persistent(branch_package, expected):
    load(branch_package).switch("branch-2")
    assert load(branch_package).wanted == "branch-2"


@pytest.mark.parametrize("option", ["branch-3", "subnet-0", "0", ""])
def test_an_unknown_option_is_refused_with_the_known_ones(branch_package, option):
    model = load(branch_package)
    expected = f'no option "{option}"; it has branch-0, branch-1 and branch-2'
    with pytest.raises(MistifyError, match=expected) as caught:
        model.switch(option)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert model.wanted == "branch-1"


def test_a_package_without_branches_has_one_option(package):
    model = load(package)
    assert (model.branches, model.wanted) == ((), "branch-0")
    with pytest.raises(MistifyError, match='no option "branch-1"; it has branch-0'):
        model.switch("branch-1")


def test_branches_run_batches_of_any_size(branch_package, expected):
    model = load(branch_package)
    image = np.concatenate([expected["image"]] * 3)
    scores = np.concatenate([expected["branches"]] * 3, axis=1)
    for batch in (1, 2, 3, 4, 5, 1, 9, 2):
        for branch, actual in enumerate(by_branch(model, image[:batch])):
            np.testing.assert_allclose(actual, scores[branch, :batch], atol=1e-6)


def test_every_output_comes_from_a_single_branch_while_threads_switch(branch_package, expected):
    model = load(branch_package)
    candidates = by_branch(model, expected["image"])
    done = threading.Event()

    def switch() -> None:
        branch = 0
        while not done.is_set():
            branch = (branch + 1) % 3
            model.switch(f"branch-{branch}")

    switchers = [threading.Thread(target=switch) for _ in range(2)]
    for thread in switchers:
        thread.start()
    ran: set[int] = set()
    try:
        with ThreadPoolExecutor(4) as pool:
            while ran != {0, 1, 2}:  # until each switching thread has had its turn
                ran |= set(pool.map(lambda _: matching(model(expected["image"]), candidates), range(1000)))
    finally:
        done.set()
        for thread in switchers:
            thread.join()
    assert sum(model.statistics().counts.values()) >= 1000


def test_a_switch_applies_from_the_next_inference(branch_package, expected):
    model = load(branch_package)
    candidates = by_branch(model, expected["image"])
    for branch in np.random.default_rng(0).integers(0, 3, 200).tolist():
        ThreadPoolExecutor(1).submit(model.switch, f"branch-{branch}").result()
        assert matching(model(expected["image"]), candidates) == branch


def test_statistics_describe_the_inferences(branch_package, expected):
    model = load(branch_package)
    for branch, batch in ((0, 1), (2, 3), (2, 2)):
        model.switch(f"branch-{branch}")
        model(expected["image"][:batch])
    statistics = model.statistics()
    assert (statistics.inferences, statistics.option) == (3, "branch-2")
    assert statistics.counts == {"branch-0": 1, "branch-1": 0, "branch-2": 2}
    assert statistics.p50_ms is not None
    assert statistics.p95_ms is not None
    assert 0 < statistics.p50_ms <= statistics.p95_ms
    (actual,) = observed(state_directory(branch_package))
    assert actual.inferences["batch"].tolist() == [1, 3, 2]
    assert actual.pid == os.getpid()


def test_a_package_without_branches_counts_as_one_branch(package, expected):
    model = load(package)
    model(expected["image"])
    assert (model.statistics().counts, model.statistics().option) == ({"branch-0": 1}, "branch-0")


@contextmanager
def serving(package: Path, data: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SERVE, str(package), str(data / "tiny_expected.npz")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def infer(process: subprocess.Popen[str]) -> np.ndarray:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("infer\n")
    process.stdin.flush()
    return np.array(json.loads(process.stdout.readline()), np.float32)


def test_two_processes_share_a_package(branch_package, package, expected, data):
    model = load(branch_package)
    with serving(branch_package, data) as other:
        for branch in (0, 2, 1):
            model.switch(f"branch-{branch}")
            np.testing.assert_allclose(infer(other), expected["branches"][branch], atol=1e-6)
        model(expected["image"])
        actual = {actual.pid: actual.counts for actual in observed(state_directory(branch_package))}
        assert actual == {other.pid: (1, 1, 1), os.getpid(): (0, 1, 0)}
        install(branch_package, package)
        for run in (lambda: infer(other), lambda: model(expected["image"])):
            while not np.allclose(run(), expected["scores"], atol=1e-6):
                """The new version is being loaded."""


def test_a_monitor_switches_branches(branch_package, expected):
    model = load(branch_package)
    Switchboard.open(state_directory(branch_package)).option = 2
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][2], atol=1e-6)


def test_a_read_only_package_runs(branch_package, package, expected, shared, caplog):
    directory = branch_package.rename(shared / "package")
    shared.chmod(0o555)
    try:
        with permissions_obeyed():
            model = load(directory)
            for scores, wanted in zip(by_branch(model, expected["image"]), expected["branches"], strict=True):
                np.testing.assert_allclose(scores, wanted, atol=1e-6)
            assert list(model.statistics().counts.values()) == [1, 1, 1]
            with pytest.raises(MistifyError, match="Permission denied"):
                install(directory, package)
    finally:
        shared.chmod(0o755)
    assert [path.name for path in shared.iterdir()] == ["package"]
    assert "no monitor can switch this model" in caplog.text


def test_a_full_disk_causes_a_warning_that_monitors_cannot_see_the_model(branch_package, expected, caplog):
    state = state_directory(branch_package)
    with files_limited_to(1000):
        model = load(branch_package, threads=1)
    np.testing.assert_allclose(model(expected["image"]), expected["branches"][1], atol=1e-6)
    assert observed(state) == []
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"no monitor can see this model until it is loaded again, because {state}" in warning
    assert "too large" in warning


def test_time_without_the_processor_and_before_the_network_is_recorded(branch_package, expected):
    """One call waits for the lock while another sleeps in the network, and the sleep counts as latency."""
    model, sleeping, asleep = load(branch_package), threading.Event(), threading.Event()
    prepared = model._loaded.network.prepared

    def sleepy(inputs):
        run = prepared(inputs)

        def sleep_and_run(values, branch):
            sleeping.set()
            asleep.wait(0.2)
            return run(values, branch)

        return sleep_and_run

    model._loaded.network.prepared = sleepy
    calls = [threading.Thread(target=model, args=[expected["image"]]) for _ in range(2)]
    calls[0].start()
    sleeping.wait()
    calls[1].start()
    for call in calls:
        call.join()
    (actual,) = observed(state_directory(branch_package))
    first, second = actual.inferences
    assert actual.threads == 1
    for inference in (first, second):
        assert inference["latency_ms"] >= 190
        assert inference["computing_ms"] < inference["latency_ms"] / 2
    assert first["before_ms"] < second["before_ms"]
