"""What `factory.speed` makes of its measurements."""

from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks.factory import requests, speed
from benchmarks.factory.prediction import MeasuredSlices, random_gates, regression_error
from benchmarks.factory.requests import LimitedRequest, Outcome, Requests
from benchmarks.factory.speed import TARGETS, request_figures
from benchmarks.harness.run import run
from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.package.factory import FactoryStore
from mistify.package.opened import Package
from mistify.parsing.quantities import Quantity
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.factories import make_package


def outcome(limits, *slice_or_error):
    return Outcome(LimitedRequest(("has", "1"), *limits), *slice_or_error)


def refused(place="--latency"):
    problem = Problem(place, "1us", "at least 2us, which the smallest slice takes here", "allow more")
    return outcome([1e-3], invalid_config([problem], "the command line"))


def test_a_slice_is_within_its_limits_if_both_hold():
    assert outcome([1.0, 100.0], None, 1.0, 100.0).is_within
    assert not outcome([1.0, 100.0], None, 1.01, 100.0).is_within
    assert not outcome([1.0, 100.0], None, 1.0, 101.0).is_within
    assert outcome([None, 100.0], None, 5.0, 100.0).is_within


def test_only_an_error_about_the_latency_counts_as_refused():
    assert refused().is_refused
    assert not refused("--memory").is_refused
    assert not outcome([1e-3], None, 1e-3).is_refused
    damaged = MistifyError(ErrorCode.CORRUPT_PACKAGE, "--latency: expected at least")
    assert not outcome([1e-3], damaged).is_refused


def test_errors_are_counted_apart_from_slices_beyond_their_limits(capsys):
    slices = [outcome([1.0], None, ms) for ms in (0.9, 1.1, 1.0)]
    figures = request_figures([*slices, refused()], [refused(), refused("--memory")])
    assert figures == {"within_limit": pytest.approx(2 / 3), "unexpected_errors": 1, "refused": 0.5}
    printed = " ".join(capsys.readouterr().out.split())
    assert "has, 1 within 1 ms: 1.1 ms" in printed
    assert "has, 1 within 0.001 ms: the command line: 1 problem" in printed


def measured(gates, latencies_ms):
    gates = np.array(gates, bool)
    return MeasuredSlices(gates, [(int(one.sum()),) for one in gates], np.array(latencies_ms))


def test_the_error_of_a_prediction_is_relative_and_a_median():
    slices = measured(np.eye(3), [1.0, 2.0, 4.0])
    assert slices.error([1.1, 2.0, 5.0]) == pytest.approx(10)


def test_a_regression_finds_latencies_that_are_linear_in_the_gates():
    rng = np.random.default_rng(0)
    gates, per_gate = rng.random((60, 8)) < 0.5, rng.uniform(0.1, 1, 8)
    slices = measured(gates, 1 + gates @ per_gate)
    tested = slices.part(slice(40, None))
    assert regression_error(slices.part(slice(40)), tested) == pytest.approx(0, abs=1e-9)
    assert regression_error(slices.part(slice(4)), tested) > 1


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


def test_random_slices_have_all_shares_of_units(package):
    store = FactoryStore.of(Package.open(package))
    drawn = random_gates(store, 200)
    for number, group in enumerate(store.groups):
        shares = [one[number].mean() for one in drawn]
        assert group.least <= min(one[number].sum() for one in drawn)
        assert np.mean(shares) == pytest.approx(0.525, abs=0.06)
        assert np.std(shares) > 0.2
    assert len({one[0].tobytes() for one in drawn}) > 190


def test_random_requests_are_answered(package, monkeypatch):
    """One third limits the latency, one third the memory, one third both."""
    monkeypatch.setattr(requests, "_SECONDS", 1e-3)
    monkeypatch.setattr(requests, "_PATIENCE", 0.0)
    monkeypatch.setattr(requests, "_IMPOSSIBLE", (0.01, 0.02))  # however busy the machine is
    customize(package, SliceRequest("has,4", Quantity(1e3)), threads=1, seconds=1e-3)  # measures ten slices
    answered = list(Requests(package).possible(3))
    given = [[limit is not None for limit in one.request[1:]] for one in answered]
    assert given == [[True, False], [False, True], [True, True]]
    assert answered[1].error is None
    assert answered[1].is_within
    for one in Requests(package).impossible(1):
        assert one.is_refused, one


def test_random_tasks_have_several_values_where_names_do(package):
    tasks = {Requests(package, seed).task() for seed in range(40)}
    assert {len(task) for task in tasks} == {2, 3, 4}
    assert {task[0] for task in tasks} == {"has", "exactly:1", "exactly:2"}


def test_every_figure_with_a_target_is_measured(monkeypatch, capsys):
    """A quick run leaves out only the time of 900 steps."""

    @contextmanager
    def ended_job(*arguments):
        yield speed.TaskJob("job", "address", arguments[0])

    parts = {
        "_added": {"add_seconds": 1.0},
        "_commands": {"customize_seconds": 1.0},
        "_predictions": {"predictor_error": 1.0},
        "_requests": {"within_limit": 1.0, "unexpected_errors": 0, "refused": 1.0},
        "_processor_time": {"slice_speedup": 1.0},
        "_memory": {"customize_memory": 1.0, "first_customize_memory": 1.0},
    }
    for name, figures in parts.items():
        monkeypatch.setattr(speed, name, lambda *arguments, own=figures: dict(own))
    monkeypatch.setattr(speed, "ended_job", ended_job)
    monkeypatch.setattr(speed, "Requests", lambda package: None)
    monkeypatch.setattr(speed.files, "write", lambda *arguments: None)
    assert run("factory.speed", TARGETS, speed.measure, ["--quick"]) == 0
    assert "full run only" in capsys.readouterr().out
    assert run("factory.speed", TARGETS, speed.measure, []) == 1
