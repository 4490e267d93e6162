"""`mistify customize` and `mistify tasks` as a user sees them."""

import json

import numpy as np
import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client import load
from mistify_client.runtime.trust import TRUSTED
from mistify_client.runtime.versions import current
from tests.support.factories import QUALITY, UNSEEN, images, make_package
from tests.support.signed_packages import sign_package


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


@pytest.fixture
def customize(mistify, package):
    return lambda *args: mistify("customize", "--package", package, *args)


def test_cuts_installs_and_says_what_it_did(customize, package):
    result = customize("--task", "exactly:2,odd", "--latency", "1s", "--memory", "1MB")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["measuring 10 slices"]
    first, note, last = result.stdout.splitlines()
    assert first.startswith("exactly:2, odd: ")
    assert "of at most 1s, " in first
    assert "of at most 1MB, " in first
    assert first.endswith("expected")
    assert note == "note: accuracy is expected, by tasks on the server's data; not measured here"
    assert last.replace(" ", "").endswith(current(package).name)


def test_json_says_the_same(customize, package, tmp_path):
    np.savez(tmp_path / "mine.npz", image=images(9), answer=np.arange(9)[:, None] % 2)
    result = customize("--task", UNSEEN, "--limit", "0.5", "--data", tmp_path / "mine.npz", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    manifest = Manifest.load(current(package))
    assert report["task"] == ["exactly:1", "even"]
    assert report["accuracy"] == manifest.accuracy
    assert report["accuracy_examples"] == 9
    assert report["latency_ms"] == manifest.latency.median_ms
    assert 0 < report["limit"] <= 0.5
    assert report["directory"] == str(current(package))


def test_a_package_of_its_own(customize, package, tmp_path):
    result = customize("--task", "has,4", "--out", tmp_path / "has-4")
    assert result.exit_code == 0, result.output
    assert "written: " in result.stdout
    assert current(package) == package
    again = customize("--task", "has,4", "--out", tmp_path / "has-4")
    assert again.exit_code == 2
    assert "--out: got " in again.stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--task", "exactly:2,od"), 2, 'did you mean "odd"'),
        (("--task", "has,4", "--latency", "fast"), 2, '--latency: got "fast"; expected a time'),
        (("--task", "has,4", "--memory", "much"), 2, '--memory: got "much"; expected'),
        (("--task", "has,4", "--limit", "0"), 2, "--limit: got 0; expected a share from 0.1 to 1"),
        (("--task", "has,4", "--data", "none.npz"), 2, "no such file"),
    ],
)
def test_mistakes_are_named_with_their_options(customize, args, code, message):
    result = customize(*args)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.split())


def test_a_package_without_an_assembler(mistify, package):
    manifest = Manifest.load(package)
    manifest.model_copy(update={"files": {}}).save(package)
    for command in (("customize", "--task", "has,4"), ("tasks",)):
        result = mistify(*command, "--package", package)
        assert result.exit_code == 3
        assert "has no assembler" in result.stderr


def test_tasks_are_listed_with_their_accuracy_by_limit(mistify, customize, package):
    customize("--task", "two-odd")
    result = mistify("tasks", "--package", package)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert "how many: has, exactly:1, exactly:2" in result.stdout
    assert "odd: stands for 1, 3" in result.stdout
    assert ["*", "exactly:2,", "odd", "70.0%", "80.0%", "95.0%", "90.0%"] in lines
    assert ["mean", "70.0%", "78.3%", "88.3%", "83.3%"] in lines


def test_tasks_as_json(mistify, package):
    listed = json.loads(mistify("tasks", "--package", package, "--json").stdout)
    assert listed["serves"] is None
    assert listed["limits"] == list(QUALITY.limits)
    assert listed["tasks"]["has, 4"] == list(QUALITY.scores[1])
    assert listed["names"]["even"] == ["2", "4"]


def test_slices_of_a_trusted_package(mistify, customize, package, tmp_path, monkeypatch):
    """A slice that is installed is the device's own; a package of its own has to be trusted once."""
    key, own = PrivateKey.generate(), tmp_path / "has-4"
    monkeypatch.setenv(TRUSTED, str(tmp_path / "trusted"))
    assert mistify("trust", key.public).exit_code == 0
    refused = customize("--task", "has,4")
    assert (refused.exit_code, "no signature" in refused.stderr) == (ErrorCode.UNTRUSTED.exit_code, True)
    sign_package(package, key)
    assert customize("--task", "has,4").exit_code == 0
    assert current(package) != package
    assert load(package, trusted=[key.public]).manifest == Manifest.load(current(package))
    assert customize("--task", "has,4", "--out", own).exit_code == 0
    with pytest.raises(MistifyError, match=r"mistify trust .*has-4"):
        load(own)
    assert mistify("trust", own).exit_code == 0
    load(own)
