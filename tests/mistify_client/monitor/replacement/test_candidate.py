"""Candidates made from the client's test networks, where one needs a hundred times as much computation."""

import tracemalloc

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify_client.monitor.replacement.candidate import (
    compute_outputs,
    read_examples,
    share_of_agreement,
    try_candidate,
)
from mistify_client.runtime.interpreter import open_network
from tests.support.tiny_packages import IMAGE, SCORES, make_package


@pytest.fixture
def fast(tmp_path, data):
    return make_package(tmp_path / "fast", data / "tiny.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def slow(tmp_path, data):
    return make_package(tmp_path / "slow", data / "tiny_slow.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def examples(tmp_path, expected):
    np.savez(tmp_path / "examples.npz", image=expected["image"])
    return tmp_path / "examples.npz"


def test_a_network_with_the_same_outputs_agrees(fast, slow, examples):
    assert try_candidate(fast, slow, examples).agreement == 1.0


def test_examples_run_one_at_a_time_to_save_memory(slow, expected):
    network = open_network(Package.open(slow), 1)
    outputs = compute_outputs(network, {"image": expected["image"]})
    assert network.shapes == ((1, 4, 4, 1),)
    np.testing.assert_allclose(outputs["scores"], expected["scores"], atol=1e-5)


def test_examples_are_not_converted_when_read(fast, tmp_path):
    """Examples are bytes, like images; the network converts them to numbers of four bytes."""
    images = np.zeros((500_000, 4, 4, 1), np.uint8)
    np.savez(tmp_path / "images.npz", image=images)
    manifest = Manifest.load(fast)
    tracemalloc.start()
    try:
        read_examples(tmp_path / "images.npz", manifest)
        assert tracemalloc.get_traced_memory()[1] < 2 * images.nbytes
    finally:
        tracemalloc.stop()


def test_agreement_is_unknown_without_examples(fast, slow):
    assert try_candidate(slow, fast).agreement is None


def test_both_packages_are_measured_alternately(fast, slow, turns):
    trial = try_candidate(fast, slow, clock=turns)
    assert (trial.candidate_ms, trial.running_ms) == (pytest.approx(1.0), pytest.approx(3.0))


def test_a_candidate_may_have_other_branches(fast, branch_package, examples):
    assert try_candidate(branch_package, fast, examples).candidate_ms > 0
    assert try_candidate(fast, branch_package, examples).candidate_ms > 0


def test_a_damaged_candidate_is_refused(fast, slow):
    (fast / "serve.tflite").write_bytes(b"\0" * 100)
    with pytest.raises(MistifyError, match="100 bytes with SHA-256") as caught:
        try_candidate(fast, slow)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_an_invalid_network_is_refused(tmp_path, slow):
    (tmp_path / "text").write_text("no network")
    candidate = make_package(tmp_path / "candidate", tmp_path / "text", (IMAGE,), (SCORES,))
    with pytest.raises(MistifyError, match="cannot be used"):
        try_candidate(candidate, slow)


def test_a_candidate_with_other_inputs_is_refused(pair_package, slow):
    with pytest.raises(MistifyError, match="cannot take the place") as caught:
        try_candidate(pair_package, slow)
    assert caught.value.code is ErrorCode.INVALID_MODEL


def test_non_finite_outputs_are_refused(fast, slow, tmp_path):
    np.savez(tmp_path / "endless.npz", image=np.full((2, 4, 4, 1), np.nan, np.float32))
    with pytest.raises(MistifyError, match="not finite"):
        try_candidate(fast, slow, tmp_path / "endless.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"image": np.zeros((2, 3), np.float32)}, "image: got shape"),
        (
            {"picture": np.zeros((2, 4, 4, 1), np.float32)},
            r"picture: got an array of shape \(2, 4, 4, 1\); expected one of image",
        ),
        (
            {"image": np.zeros((2, 4, 4, 1), np.float32), "y": np.zeros(2)},
            r"examples\.npz does not fit the network\n  y: got an array of shape \(2,\); expected one of",
        ),
        (b"no arrays", "an .npz file"),
        (b"PK\x03\x04 an archive that was cut short", "an .npz file"),
    ],
)
def test_unsuitable_examples_are_refused(fast, tmp_path, content, message):
    path = tmp_path / "examples.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, **content)
    with pytest.raises(MistifyError, match=message) as caught:
        read_examples(path, Manifest.load(fast))
    assert caught.value.code is ErrorCode.INVALID_DATASET


def test_classes_agree_if_the_largest_score_is_the_same():
    new = {"scores": np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.6, 0.4]])}
    old = {"scores": np.array([[0.6, 0.4], [0.4, 0.6], [0.8, 0.2], [0.9, 0.1]])}
    assert share_of_agreement(new, old) == 0.75


def test_numbers_agree_if_they_are_close_in_all_outputs():
    new = {"age": np.array([[10.0], [50.0]]), "tag": np.array([[[1.0, 0.0]], [[1.0, 0.0]]])}
    old = {"age": np.array([[14.0], [100.0]]), "tag": np.array([[[1.0, 0.0]], [[1.0, 0.0]]])}
    assert share_of_agreement(new, old) == 0.5
    old["tag"][0] = [[0.0, 1.0]]
    assert share_of_agreement(new, old) == 0.0
