"""The registry of algorithms: their settings and profiles, and plug-ins that cannot be used."""

import subprocess
import sys

import pytest

from executors.contract.algorithm import ENTRY_POINTS
from executors.contract.executor import AdaptationExecutor
from executors.contract.profile import AlgorithmProfile
from executors.contract.registry import algorithm, algorithms, executor_class, profile_of
from executors.structure import analyse
from mistify.errors import ErrorCode, MistifyError
from tests.executors.contract.algorithms import (
    ALGORITHMS,
    quick_params,
)
from tests.support.plug_ins import installed


@pytest.mark.parametrize("name", ALGORITHMS)
def test_unknown_settings_are_refused(name):
    with pytest.raises(ValueError, match="no_such_setting"):
        algorithm(name).params(no_such_setting=1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_profile_survives_serialization_and_larger_cuts_never_take_fewer_steps(name, trained):
    profile = profile_of(name, quick_params(name), analyse(trained))
    assert AlgorithmProfile.model_validate_json(profile.model_dump_json()) == profile
    for steps in (profile.preparation, profile.adaptation):
        assert list(steps) == sorted(steps)
    assert profile.adaptation[0] == 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_declared_irrelevant_for_the_preparation_exist(name):
    found = algorithm(name)
    assert found.edge_settings <= found.params.model_fields.keys()


def test_loading_the_built_in_algorithms_does_not_import_tensorflow():
    code = (
        "import sys; from executors.contract.algorithm import built_in; print(*built_in()); "
        "assert not {'keras', 'tensorflow'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= algorithms().keys()
    assert "morphnet" in done.stdout


def test_an_incomplete_algorithm_cannot_be_created():
    class Incomplete(AdaptationExecutor):
        def iterate(self):
            return 0

    with pytest.raises(TypeError, match="abstract"):
        Incomplete(None)


def test_an_unknown_algorithm_is_reported_with_the_known_ones():
    with pytest.raises(MistifyError, match="morphnet"):
        executor_class("morfnet")


def test_an_unusable_algorithm_is_reported_and_not_listed(tmp_path, monkeypatch):
    points = {
        "absent": "no_such_module:ALGORITHM",
        "number": "odd_algorithms:number",
        "unfinished": "odd_algorithms:UNFINISHED",
    }
    before = algorithms()
    code = (
        "from executors.contract.algorithm import Algorithm\n"
        "number = 3\n"
        "UNFINISHED = Algorithm(executor='odd_algorithms:number')\n"
    )
    monkeypatch.syspath_prepend(installed(tmp_path, "odd_algorithms", code, points, ENTRY_POINTS))
    reasons = {
        "absent": "no_such_module:ALGORITHM.*ModuleNotFoundError",
        "number": "odd_algorithms:number: is 3, no executors.contract.algorithm.Algorithm",
        "unfinished": "odd_algorithms:number: is 3, no executors.contract.executor.AdaptationExecutor",
    }
    for name, reason in reasons.items():
        with pytest.raises(MistifyError, match=f"{name}.*cannot be used: {reason}") as caught:
            executor_class(name)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert algorithms() == before
