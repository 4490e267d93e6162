"""`mistify engines`."""

import json

import pytest

from tests.mistify_client.pools import make_elastic_package


@pytest.fixture
def package(tmp_path):
    return make_elastic_package(tmp_path / "package")


def test_every_engine_is_listed(package, mistify):
    shown = mistify("engines", "--package", package, "--threads", "1", "--seconds", "0.001")
    assert shown.exit_code == 0, shown.stderr
    assert "compiled, 1 thread, mapped weights" in shown.stdout
    result = mistify("engines", "--package", package, "--threads", "1", "--seconds", "0.001", "--json")
    engines = json.loads(result.stdout)["engines"]
    assert [one["engine"]["execution"] for one in engines] == ["interpreter", "compiled"]
    assert engines[0]["option"] == "branch-0"


@pytest.mark.parametrize("threads", ["0", "two", "1,", "2000"])
def test_invalid_numbers_of_threads_are_refused(package, mistify, threads):
    result = mistify("engines", "--package", package, "--threads", threads)
    assert result.exit_code == 2
    assert f'--threads: got "{threads}"; expected numbers from 1 to 1024' in result.stderr
