"""`mistify versions` and `mistify rollback`."""

import json
from datetime import UTC, datetime

import pytest

from mistify.package.manifest import Manifest
from mistify_client import load
from mistify_client.runtime.versions import current, install
from tests.support.tiny_packages import IMAGE, SCORES, make_package

TUNED_FROM = "0" * 64


@pytest.fixture
def newer(tmp_path, data):
    """Return another package with the same inputs and outputs, which was tuned."""
    package = make_package(tmp_path / "newer", data / "tiny.tflite", (IMAGE,), (SCORES,))
    changes = {"goal": "third", "tuned_from": TUNED_FROM, "created": datetime(2026, 5, 6, tzinfo=UTC)}
    Manifest.load(package).model_copy(update=changes).save(package)
    return package


def versions_of(package, mistify):
    result = mistify("versions", "--package", package, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["versions"]


def test_a_package_has_one_version_at_first(package, mistify):
    (only,) = versions_of(package, mistify)
    assert only == {
        "version": "current, shipped",
        "made": "2026-01-02T00:00:00+00:00",
        "origin": "shipped",
        "job": "job-1",
        "goal": "half",
        "directory": str(package),
    }


def test_installed_versions_are_listed(package, newer, mistify, monkeypatch):
    install(package, newer)
    first, shipped = versions_of(package, mistify)
    assert (first["version"], first["origin"], first["goal"]) == ("current", "tuned", "third")
    assert first["directory"] == str(current(package))
    assert (shipped["version"], shipped["directory"]) == ("previous, shipped", str(package))
    before = current(package)
    install(package, newer)
    assert [each["version"] for each in versions_of(package, mistify)] == ["current", "previous", "shipped"]
    assert versions_of(package, mistify)[1]["directory"] == str(before)
    monkeypatch.setenv("COLUMNS", "80")
    shown = mistify("versions", "--package", package).stdout.splitlines()
    assert shown[2].split() == ["current", "2026-05-06T00:00:00+00:00", "tuned", "job-1", "third"]
    assert f"previous: {before}" in shown


def test_versions_are_rolled_back_one_by_one(package, newer, mistify):
    first, second = install(package, newer), install(package, newer)
    model = load(package)
    shown = mistify("rollback", "--package", package)
    assert (shown.exit_code, shown.stdout.replace("\n", "")) == (0, f"current: {first}, instead of {second}")
    assert current(package) == first
    assert mistify("rollback", "--package", package).exit_code == 0
    assert current(package) == package
    assert model._switchboard.generation > model._loaded.generation
    nothing = mistify("rollback", "--package", package)
    assert nothing.exit_code == 3
    assert "has no version before the current one" in nothing.stderr


@pytest.mark.parametrize("command", ["versions", "rollback"])
def test_a_directory_without_a_package_is_refused(tmp_path, mistify, command):
    result = mistify(command, "--package", tmp_path)
    assert result.exit_code in {3, 13}
    assert str(tmp_path) in result.stderr
