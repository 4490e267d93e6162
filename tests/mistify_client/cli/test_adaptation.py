"""`mistify adaptation`: what it shows, and how it resets."""

import json

import pytest
from typer.testing import CliRunner

from mistify_client.adapting.storage import AdaptationStorage
from mistify_client.cli.main import app
from mistify_client.runtime.versions import current
from tests.support.adaptable import Camera, digits, dirty, make_package, shuffled

IMAGES, _ = digits()


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def run(package, *options):
    return CliRunner().invoke(app, ["adaptation", "--package", str(package), *options])


def test_a_package_without_statistics_says_how_to_get_them(package):
    result = run(package)
    assert result.exit_code == 0
    assert "[adaptation]" in result.output
    assert json.loads(run(package, "--json").output) == {"state": None, "history": []}


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


def test_a_directory_without_a_package_is_an_error(tmp_path):
    result = run(tmp_path / "nothing")
    assert result.exit_code != 0
    assert not (tmp_path / "nothing.state").exists()
