"""End-to-end tests of `mistify adapt` and `mistify subnets`."""

import json

import numpy as np
import pytest

from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.search_session import TABLES
from tests.mistify_client.pools import make_elastic_package, set_latencies
from tests.support import elastic_stores


@pytest.fixture
def package(tmp_path):
    package = make_elastic_package(tmp_path / "package")
    set_latencies(package)
    return package


@pytest.fixture
def data(tmp_path):
    images, classes = elastic_stores.digits()
    np.savez(tmp_path / "mine.npz", x=images[1000:1100], y=classes[1000:1100])
    return tmp_path / "mine.npz"


@pytest.fixture
def adapt(mistify, package, data):
    return lambda *args: mistify("adapt", "--package", package, "--data", data, *args)


def test_adapt_creates_the_pool_that_subnets_lists(adapt, mistify, package):
    result = adapt("--latency", "0.9x")
    assert result.exit_code == 0, result.output
    assert "chosen: " in result.output
    assert "of at most" in result.output
    assert result.stderr.splitlines() == ["searching 34 subnets on 100 examples"]
    listed = mistify("subnets", "--package", package)
    assert listed.exit_code == 0, listed.output
    assert listed.output in result.output
    assert "block-1-shrunk, block-3-shrunk" in listed.output
    assert {"loss", "score"} < set(listed.output.splitlines()[0].split())
    rows = [line for line in listed.output.splitlines() if "x " in line]
    assert sum(line.startswith("*") for line in rows) == 1


def test_json_has_the_same_content(adapt, mistify, package):
    result = adapt("--latency", "0.9x", "--strategy", "annealing", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["chosen"] in report["pool"]["entries"]
    for entry in (*report["pool"]["entries"], report["original"]):
        assert entry["score"] == pytest.approx(entry["accuracy"] - entry["loss"] / 2)
    assert report["chosen"]["latency_ms"] <= report["pool"]["budget_ms"]
    assert 0 < report["scored"] <= 34
    assert report["block_runs"] > 0
    assert report["block_runs_saved"] > 0
    assert report["peak_bytes"] > 10_000_000
    assert report["seconds"] > 0
    listed = mistify("subnets", "--package", package, "--json")
    assert json.loads(listed.stdout) == report["pool"]


def test_a_generous_latency_target_chooses_the_most_accurate_subnet(adapt):
    report = json.loads(adapt("--latency", "10ms", "--json").stdout)
    assert report["pool"]["budget_ms"] == 10
    assert report["chosen"] == report["pool"]["entries"][-1]


def test_blocks_are_measured_with_the_requested_threads(adapt, package):
    pool = json.loads(adapt("--latency", "1x", "--threads", "2", "--json").stdout)["pool"]
    assert {entry["engine"]["threads"] for entry in pool["entries"]} == {2}
    assert (state_directory(package) / TABLES / "latency-interpreter-2.json").exists()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("latency", "message"),
    [
        ("fast", '--latency: got "fast"; expected a time such as "30ms"'),
        ("0.01x", "--latency: got 0.01x"),
        ("1ns", "--latency: got 1ns; expected at least"),
    ],
)
def test_an_invalid_latency_is_refused(adapt, package, latency, message):
    result = adapt("--latency", latency)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert not (state_directory(package) / "pool.json").exists()


def test_a_package_without_a_pool_has_no_subnets(mistify, package):
    result = mistify("subnets", "--package", package)
    assert result.exit_code == 3
    assert "has no pool of subnets; make one with mistify adapt" in result.stderr.replace("\n", " ")


def test_a_directory_without_a_package_has_no_subnets(mistify, tmp_path):
    result = mistify("subnets", "--package", tmp_path)
    assert result.exit_code == 3
    assert "it has no manifest.json" in result.stderr.replace("\n", " ")
