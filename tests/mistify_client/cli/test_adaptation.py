"""`mistify adaptation`: what it shows, and how it resets."""

import json

import pytest
from typer.testing import CliRunner

from mistify.package.manifest import NETWORK, Manifest
from mistify_client.adapting.storage import AdaptationStorage
from mistify_client.cli.main import app
from mistify_client.runtime.versions import current, install
from tests.support.adaptable import Camera, digits, dirty, make_package, shuffled

IMAGES, LABELS = digits()


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def run(package, *options):
    return CliRunner().invoke(app, ["adaptation", "--package", str(package), *options])


def test_a_package_without_statistics_says_how_to_get_them(package):
    result = run(package)
    assert result.exit_code == 0
    assert "[adaptation]" in result.output
    assert json.loads(run(package, "--json").output) == {"problem": None, "state": None, "history": []}


def test_a_package_that_cannot_be_adapted_says_why(package, tmp_path):
    """The version before the tuning was adapted."""
    Camera(package).shows(dirty(shuffled(IMAGES, 480)))
    tuned = make_package(tmp_path / "tuned")
    manifest = Manifest.load(tuned)
    files = {NETWORK: manifest.files[NETWORK]}
    manifest.model_copy(update={"files": files, "tuned_from": files[NETWORK].sha256}).save(tuned)
    install(package, tuned)
    shown = run(package)
    assert shown.exit_code == 0
    assert "cannot be adapted to data without labels" in " ".join(shown.output.split())
    assert "installed: the data have shifted" in shown.output
    content = json.loads(run(package, "--json").output)
    assert content["state"] is None
    assert "it was tuned on this device" in content["problem"]


def test_state_and_history_are_shown_and_reset(package):
    camera = Camera(package)
    camera.shows(dirty(shuffled(IMAGES, 480)))
    shown = run(package).output
    assert shown.startswith("adapted, shift ")
    assert "installed: the data have shifted" in shown
    content = json.loads(run(package, "--json").output)
    assert content["state"]["adapted"] is True
    assert content["history"][0]["event"] == "installed"
    assert run(package, "--reset").exit_code == 0
    assert current(package) == package
    camera.loop.step()
    state = AdaptationStorage(package).state()
    assert (state.adapted, state.shift) == (False, 0)
    assert [entry["event"] for entry in AdaptationStorage(package).history()][-1] == "reset"


def test_a_stream_of_one_class_says_why_nothing_is_learned(package):
    camera = Camera(package)
    camera.shows(IMAGES[LABELS == 0][:40])
    assert "nothing is learned below a spread of 50%" in run(package).output
    camera.shows(shuffled(IMAGES, 160))
    assert "nothing is learned" not in run(package).output


def test_a_directory_without_a_package_is_an_error(tmp_path):
    result = run(tmp_path / "nothing")
    assert result.exit_code != 0
    assert not (tmp_path / "nothing.state").exists()
