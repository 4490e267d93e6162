"""The contract of all registered correlation measures, and the built-in measure."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.peers.correlation import ENTRY_POINTS, Correlation, correlation
from mistify.peers.hints import Hints, Location
from mistify.plugins import plug_ins
from tests.support.plug_ins import installed

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
#: Settings of each measure that fit the hints `FULL`.
SETTINGS = {
    "spatiotemporal": {
        "location_km": 2.0,
        "time_hours": 3.0,
        "view_degrees": 30.0,
        "features": {"length": 2, "scale": 4.0},
        "labels": {"length": 3, "scale": 0.5},
    }
}
FULL = Hints(
    location=Location(latitude=47.4, longitude=8.5),
    time=NOON,
    view_degrees=10.0,
    features=(1.0, -1.0),
    labels=(0.5, 0.5, 0.0),
)


@pytest.mark.parametrize("name", list(plug_ins(ENTRY_POINTS)))
def test_every_measure_fulfils_the_contract(name):
    measure = correlation(name, SETTINGS[name])
    point = measure.point(FULL)
    assert isinstance(measure, Correlation)
    assert point.shape == (measure.dimension,)
    assert np.isfinite(point).all()
    assert (point == correlation(name, SETTINGS[name]).point(FULL.model_copy())).all()


def distance(one: Hints, other: Hints) -> float:
    measure = correlation("spatiotemporal", SETTINGS["spatiotemporal"])
    return float(np.linalg.norm(measure.point(one) - measure.point(other)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"location": Location(latitude=47.4 + math.degrees(2 / 6371), longitude=8.5)}, 1),
        ({"time": NOON + timedelta(hours=6)}, 2),
        ({"view_degrees": 40.0}, 1),
        ({"view_degrees": 340.0}, 1),
        ({"features": (1.0, 7.0)}, 2),
        ({"labels": (0.0, 0.0, 1.0)}, 2),  # disjoint distributions: a Hellinger distance of 1
        ({"time": NOON + timedelta(hours=9), "features": (1.0, 15.0)}, 5),  # 3 and 4 at a right angle
    ],
)
def test_a_difference_of_one_scale_is_a_distance_of_one(change, expected):
    assert distance(FULL, FULL.model_copy(update=change)) == pytest.approx(expected, rel=1e-5)


def test_distances_are_small_across_the_date_line():
    west, east = (
        FULL.model_copy(update={"location": Location(latitude=0, longitude=longitude)})
        for longitude in (-179.999, 179.999)
    )
    assert distance(west, east) < 0.2


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"location": None}, "hints.location"),
        ({"features": (1.0,)}, "hints.features"),
        ({"labels": (1.0,)}, "hints.labels"),
    ],
)
def test_hints_that_do_not_fit_the_settings_are_refused(change, place):
    measure = correlation("spatiotemporal", SETTINGS["spatiotemporal"])
    with pytest.raises(MistifyError) as caught:
        measure.point(FULL.model_copy(update=change))
    assert [problem.place for problem in caught.value.problems] == [place]


def test_unused_hints_are_refused():
    measure = correlation("spatiotemporal", {"time_hours": 1})
    assert measure.dimension == 1
    with pytest.raises(MistifyError) as caught:
        measure.point(FULL)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    "settings", [{}, {"location_km": 0}, {"colour": 1}, {"features": {"length": 0}}, {"time_hours": "long"}]
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(MistifyError) as caught:
        correlation("spatiotemporal", settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.problems


def test_an_unknown_measure_is_reported_with_the_known_ones():
    with pytest.raises(MistifyError, match="expected one of spatiotemporal"):
        correlation("psychic", {})


def test_an_unusable_plug_in_is_reported_with_the_reason(tmp_path, monkeypatch):
    points = {
        "missing": "odd_measures:nothing",
        "absent": "no_such_module:Measure",
        "number": "odd_measures:number",
    }
    monkeypatch.syspath_prepend(installed(tmp_path, "odd_measures", "number = 3\n", points, ENTRY_POINTS))
    for name, reason in {
        "missing": "AttributeError",
        "absent": "ModuleNotFoundError",
        "number": "3, no mistify.peers.correlation.Correlation",
    }.items():
        with pytest.raises(
            MistifyError, match=f'"{name}" cannot be used.*{points[name]}.*{reason}'
        ) as caught:
            correlation(name, {})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
