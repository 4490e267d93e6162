"""The pretrained ResNet-8 of MLPerf Tiny on CIFAR-10, ported to six goals with the results in the README."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mistify_client
from tests.support.paths import REPOSITORY

DATA = os.environ.get("MISTIFY_TEST_DATA")

#: Minimum accuracies on the test file.
LEAST = {"flop-75": 0.790, "flop-50": 0.765, "flop-35": 0.735, "flop-25": 0.700}


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="MISTIFY_TEST_DATA names no directory with cifar10/ and mlperf_tiny/")
@pytest.mark.timeout(1800)
def test_resnet8_keeps_its_accuracy(tmp_path):
    command = [Path(sys.executable).with_name("mistify"), "port", REPOSITORY / "configs/resnet8_cifar10.json"]
    subprocess.run([*command, "--data-root", DATA, "--out", tmp_path], check=True)
    report = json.loads((tmp_path / "report.json").read_text())
    goals = {goal["id"]: goal for goal in report["goals"]}
    assert len(goals) == 6
    assert all(goal["met"] for goal in goals.values())
    for name, least in LEAST.items():
        assert goals[name]["achieved"]["accuracy"] >= least
    with np.load(Path(DATA) / "cifar10/test.npz") as test:
        images, classes = test["x"].astype(np.float32), test["y"].ravel()
    for name, goal in goals.items():
        served = mistify_client.load(tmp_path / "goals" / name)(images).argmax(axis=1)
        assert np.mean(served == classes) == pytest.approx(goal["achieved"]["accuracy"], abs=5e-4)
