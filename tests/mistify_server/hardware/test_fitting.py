"""Fitting latency models to tables made from known parameters."""

from dataclasses import replace

import pytest

from mistify.costs.devices import Power
from mistify.costs.operators import OperatorKind
from mistify.errors import MistifyError
from mistify.profiling.samples import samples
from mistify_server.hardware.fitting import fitted
from tests.support.boards import FOLLOWING, PASSED, TILES, table, taken


def test_known_parameters_are_recovered() -> None:
    (float32, int8), settings = fitted(table())
    for profile in (float32, int8):
        model = profile.model
        assert model.routines["convolution"].tile == TILES[profile.integer]
        assert model.between == pytest.approx((FOLLOWING, PASSED), rel=0.05)
        for chain in samples(integer=profile.integer, seed=1):
            assert model.latency_ms(chain) == pytest.approx(taken(chain, profile.integer) / 1e3, rel=0.02)
    assert [(setting.integer, setting.threads) for setting in settings] == [(False, 1), (True, 1)]
    assert all(setting.p90_error < 0.02 for setting in settings)


def test_errors_are_estimated_on_held_out_networks() -> None:
    """With 10% measurement noise, one in ten measurements is at least 16% off the best prediction."""
    _, settings = fitted(table(noise=0.1))
    for setting in settings:
        assert 0.04 < setting.median_error < 0.11
        assert 0.11 < setting.p90_error < 0.25


def test_no_parameter_is_negative() -> None:
    profiles, _ = fitted(table(noise=0.3))
    for profile in profiles:
        for routine in profile.model.routines.values():
            assert min(routine.figures) >= 0


def test_every_number_of_threads_has_its_own_profile() -> None:
    one = table()
    two = [replace(reading, threads=2, median_ms=reading.median_ms / 2) for reading in one.readings]
    profiles, settings = fitted(replace(one, readings=(*one.readings, *two)))
    assert [(profile.name, profile.threads, profile.integer) for profile in profiles] == [
        ("my-board", 1, False),
        ("my-board@2-threads", 2, False),
        ("my-board@int8", 1, True),
        ("my-board@2-threads@int8", 2, True),
    ]
    chain = next(iter(samples(integer=False)))
    once, twice = (profile.model.latency_ms(chain) for profile in profiles[:2])
    assert once == pytest.approx(2 * twice, rel=0.01)
    assert [setting.threads for setting in settings] == [1, 2, 1, 2]


def test_power_belongs_to_its_precision_and_number_of_threads() -> None:
    drawn = replace(table(), powers=(Power(False, 1, 2.0), Power(True, 1, 1.5)))
    profiles, settings = fitted(drawn)
    assert [profile.watts for profile in profiles] == [2.0, 1.5]
    assert [setting.watts for setting in settings] == [2.0, 1.5]
    profiles, settings = fitted(table())
    assert [profile.watts for profile in profiles] == [None, None]
    assert [setting.watts for setting in settings] == [None, None]


def test_a_table_without_a_kind_of_operator_is_refused() -> None:
    whole = table()
    without = [
        r for r in whole.readings if r.integer or all(o.kind is not OperatorKind.MEAN for o in r.operations)
    ]
    with pytest.raises(MistifyError, match="readings of float32 on 1 thread: got none of mean"):
        fitted(replace(whole, readings=tuple(without)))
    floats = [reading for reading in whole.readings if not reading.integer]
    with pytest.raises(MistifyError, match="readings: got none of int8 on 1 thread"):
        fitted(replace(whole, readings=tuple(floats)))
    again = [replace(reading, threads=4) for reading in floats]
    with pytest.raises(MistifyError, match="readings: got none of int8 on 4 threads"):
        fitted(replace(whole, readings=(*whole.readings, *again)))
